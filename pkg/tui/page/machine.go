package page

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/store"
	"github.com/virtkit/virtkit/pkg/tui/keymap"
	"github.com/virtkit/virtkit/pkg/tui/theme"
	"github.com/virtkit/virtkit/pkg/tui/widget"
)

// Machine is the page of one virtual machine.
type Machine struct {
	world  *World
	key    store.Key
	row    *store.Machine // the last there was
	gone   bool
	events []*store.Event
	keys   keymap.Map[*Machine]
}

// NewMachine makes the page.
func NewMachine(w *World, key store.Key) *Machine {
	p := &Machine{world: w, key: key}
	for _, b := range machineBindings() {
		p.keys = append(p.keys, keymap.Binding[*Machine]{
			Keys: b.Keys, Name: b.Name, Help: b.Help, Quiet: b.Quiet,
			Allowed: func(p *Machine) string { return b.Allowed(p.subject()) },
			Do:      func(p *Machine) tea.Cmd { return b.Do(p.subject()) },
		})
	}
	p.Refresh()
	return p
}

func (p *Machine) subject() subject {
	if p.row == nil || p.gone {
		return subject{world: p.world}
	}
	return subject{p.world, []*store.Machine{p.row}}
}

// Title is the machine's name.
func (p *Machine) Title() string { return p.key.String() }

// State is that of the machines.
func (p *Machine) State() store.State { return p.world.Machines.State() }

// Refresh reads the machine and its events anew.
func (p *Machine) Refresh() {
	row := p.world.Machines.Get(p.key)
	p.gone = row == nil
	if row != nil {
		p.row = row
	}
	p.events = EventsOf(p.world.Events.Rows(), p.key)
}

// Update has nothing to hear.
func (p *Machine) Update(tea.Msg) tea.Cmd { return nil }

// Key does what a key is bound to.
func (p *Machine) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints are the page's keys.
func (p *Machine) Hints() []keymap.Hint { return p.keys.Hints(p) }

// EventsOf are the events of a machine, its instance and its pods, the newest first.
func EventsOf(events []*store.Event, key store.Key) []*store.Event {
	var out []*store.Event
	for _, e := range events {
		if e.Namespace == key.Namespace && (e.Object == key.Name || strings.HasPrefix(e.Object, "virt-launcher-"+key.Name+"-")) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *store.Event) int { return b.Last.Compare(a.Last) })
	return out
}

// View draws what is known of the machine, what it uses, and what happened to it.
func (p *Machine) View(width, height int) string {
	t := p.world.Theme
	if p.row == nil {
		return t.Paint(theme.Dim, "  There is no machine "+p.key.String())
	}
	m, now := p.row, p.world.Now()
	var lines []string
	add := func(name string, value string, role theme.Role) {
		if value != "" {
			lines = append(lines, "  "+t.Paint(theme.Dim, widget.Pad(t, name, 14))+t.Paint(role, widget.Pad(t, widget.Harmless(value), max(10, width-18))))
		}
	}
	if p.gone {
		lines = append(lines, t.Paint(theme.Bad, "  It has been deleted."))
	}
	ready := "not ready"
	if m.Ready {
		ready = "ready"
	}
	add("Status", m.Status+", "+ready, statusRole(m))
	add("Conditions", conditions(m), theme.Text)
	add("Run strategy", m.RunStrategy, theme.Text)
	add("Node", m.Node, theme.Text)
	add("Addresses", strings.Join(m.IPs, ", "), theme.Text)
	add("Guest OS", m.GuestOS, theme.Text)
	add("Size", fmt.Sprintf("%d CPUs, %s", m.CPUs, m.Memory.String()), theme.Text)
	add("Age", age(m.Created, now), theme.Text)
	add("Labels", labels(m.Labels), theme.Text)
	if s := p.world.Usage.Of(p.key); s != nil && m.Alive() {
		lines = append(lines, "")
		graph := func(name string, values []float64, full float64, text string) {
			room := max(10, min(history, width-16-len(text)-3))
			lines = append(lines, "  "+t.Paint(theme.Dim, widget.Pad(t, name, 14))+t.Paint(theme.Accent, widget.Sparkline(t, values, full, room))+"  "+text)
		}
		cpus := float64(max(1, m.CPUs)) * 1000
		graph("CPU", s.CPU, cpus, fmt.Sprintf("%.0f%%", float64(s.Now.CPU)/cpus*100))
		graph("Memory", s.Memory, float64(s.Now.Memory), widget.Bytes(s.Memory[len(s.Memory)-1])+" of "+widget.Bytes(float64(s.Now.Memory)))
		graph("Network", s.Net, slices.Max(s.Net), fmt.Sprintf("in %s/s, out %s/s", widget.Bytes(float64(s.Now.NetworkReceived)), widget.Bytes(float64(s.Now.NetworkSent))))
		graph("Disk", s.Disk, slices.Max(s.Disk), fmt.Sprintf("read %s/s, written %s/s", widget.Bytes(float64(s.Now.DiskRead)), widget.Bytes(float64(s.Now.DiskWritten))))
	}
	lines = append(lines, "", "  "+t.Paint(theme.Title, "Events"))
	if len(p.events) == 0 {
		lines = append(lines, t.Paint(theme.Dim, "  none that the server still has"))
	}
	for _, e := range p.events {
		lines = append(lines, "  "+eventLine(t, e, now, width-2))
	}
	return strings.Join(lines[:min(len(lines), height)], "\n")
}

func labels(set map[string]string) string {
	var out []string
	for k, v := range set {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
