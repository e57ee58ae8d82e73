package page

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Set is the page of one pool or replica set. All of it comes from rows.
type Set struct {
	world   *World
	key     store.Key
	row     *store.Set // the last there was
	gone    bool
	members []*store.Machine
	events  []*store.Event
	keys    keymap.Map[*Set]
	window
}

// membersMost is how many machines the page lists; the page of its machines has all.
const membersMost = 20

// NewSet makes the page of a set with the key of a row.
func NewSet(w *World, key store.Key) *Set {
	followSets(w)
	p := &Set{world: w, key: key}
	p.keys = keymap.Of(setBindings(), (*Set).group)
	for i := range p.keys {
		if p.keys[i].Name == "machines" {
			p.keys[i].Keys = []string{"enter", "i"}
		}
	}
	p.keys = append(p.keys, scrolling[*Set](func(p *Set) *window { return &p.window })...)
	p.Refresh()
	return p
}

func (p *Set) group() group {
	if p.gone {
		return group{p.world, nil}
	}
	return group{p.world, p.row}
}

// Title returns the set's kind and name.
func (p *Set) Title() string {
	resource, namespace, _ := strings.Cut(p.key.Namespace, "/")
	return (&store.Set{Resource: resource}).Short() + " " + namespace + "/" + p.key.Name
}

// State returns the state of the sets.
func (p *Set) State() store.State { return setsState(p.world) }

// Refresh reads the set, its machines and its events anew.
func (p *Set) Refresh() {
	p.gone = true
	for _, s := range setRows(p.world) {
		if s.Key() == p.key {
			p.row, p.gone = s, false
		}
	}
	if p.row == nil {
		return
	}
	p.members = members(p.world, p.row)
	slices.SortFunc(p.members, store.Compare)
	p.events = eventsOn(p.world, p.row.Kind, store.Key{Namespace: p.row.Namespace, Name: p.row.Name})
}

// Update does nothing: the page has no messages.
func (p *Set) Update(tea.Msg) tea.Cmd { return nil }

// Key does what a key is bound to.
func (p *Set) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Set) Hints() []keymap.Hint { return p.keys.Hints(p) }

// View draws the sections, in two columns where there is room, as far as they are scrolled to.
func (p *Set) View(width, height int) string {
	if p.row == nil {
		return absent(p.world, p.State(), "pools and replica sets", "There is no "+p.Title(), width)
	}
	return p.view(p.world.Theme, p.draw(width), width, height)
}

func (p *Set) draw(width int) []string {
	all := p.world.canvas(width)
	events := all.events(p.events)
	if width < twoColumns {
		return together([][]string{p.head(all), p.conditions(all), p.machines(all), events})
	}
	left := (width - 2) / 2
	l, r := p.world.canvas(left), p.world.canvas(width-2-left)
	return together([][]string{beside(together([][]string{p.head(l), p.conditions(l)}), p.machines(r), left), events})
}

// head returns what the set is, how it is, and what it asks for.
func (p *Set) head(c canvas) []string {
	s := p.row
	lines := c.deleted(p.gone)
	add := func(name, value string, role theme.Role) { lines = append(lines, c.line(name, value, role)...) }
	add("Kind", s.Kind, theme.Text)
	add("Machines", fmt.Sprintf("%d desired, %d there, %d ready", s.Desired, s.Current, s.Ready), setRole(s))
	add("Why", shortOf(s, lacking(p.world, []*store.Set{s})[s.UID]), setRole(s))
	for _, field := range s.Spec {
		add(field[0], field[1], theme.Text)
	}
	add("Age", age(s.Created, c.now), theme.Text)
	add("Labels", labels(s.Labels), theme.Text)
	return lines
}

func (p *Set) conditions(c canvas) []string {
	return c.conditions(p.row.Conditions, func(o store.Condition) bool {
		return o.Status == corev1.ConditionTrue // both that there are say that something is the matter
	})
}

// machines lists its machines.
func (p *Set) machines(c canvas) []string {
	lines := []string{c.title(fmt.Sprintf("Machines %d", len(p.members)))}
	if len(p.members) == 0 {
		return append(lines, c.dim("none"))
	}
	shown := p.members[:min(len(p.members), membersMost)]
	name := 0
	for _, m := range shown {
		name = max(name, ansi.StringWidth(widget.Harmless(m.Name)))
	}
	name = min(name, max(8, c.width-46))
	for _, m := range shown {
		lines = append(lines,
			"  "+widget.Pad(c.t, widget.Harmless(m.Name), name)+"  "+
				c.state(m)+"  "+
				c.cut(m.Node, c.width-name-28))
	}
	if more := len(p.members) - len(shown); more > 0 {
		lines = append(lines, c.dim(fmt.Sprintf("%d more; enter shows all", more)))
	}
	return lines
}

// state returns how a machine is, with its glyph, in a column.
func (s canvas) state(m *store.Machine) string {
	role := statusRole(m)
	return s.t.Paint(role, widget.Pad(s.t, s.t.State(role)+" "+widget.Harmless(m.Status), 20))
}
