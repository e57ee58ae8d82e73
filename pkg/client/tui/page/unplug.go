package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// attachment is a volume that was plugged in, as a row of the page.
type attachment = *volume.Attachment

// unplugging is the page of the volumes that were plugged into a machine, to unplug some.
type unplugging struct {
	rows[attachment]
	machine     *store.Machine // the last there was
	gone        bool
	attachments []attachment
	ends        map[string]bool // claims that are being deleted
	objects     reading[string]
	good        time.Time // when they were read
}

// pluggedRead is what was read of a machine for its unplugging page.
type pluggedRead struct {
	page    *unplugging
	details *Details
	claims  []volume.Claim // none where they may not be read
	err     error
}

// NewUnplug makes the page of a machine.
func NewUnplug(w *World, m *store.Machine) Page {
	p := &unplugging{machine: m}
	p.rows = rows[attachment]{
		world: w, title: "unplug from " + m.Key().String(), what: "volumes that were plugged in", marks: true,
		lacks: func() string {
			return fmt.Sprintf("%s has no volume that was plugged in; those that it starts with cannot be taken out",
				named(p.machine))
		},
		advice: "P on the machine plugs a volume in, e changes those that it starts with; esc goes back",
		state:  p.believed,
		read:   func() []attachment { return p.attachments },
	}
	p.table = widget.Table[attachment]{
		Columns: attachmentColumns(w, func(a attachment) bool { return p.ends[a.Claim] }), Now: w.Now, Theme: w.Theme,
		Key: func(a attachment) store.Key { return store.Key{Name: a.Name} },
	}
	p.double = func() tea.Cmd {
		if p.refusal() != "" {
			return nil
		}
		return p.ask()
	}
	p.bind(keymap.Binding[*rows[attachment]]{
		Keys: []string{"enter", "U"}, Name: "unplug", Help: "take the volume out of the machine",
		Allowed: func(*rows[attachment]) string { return p.refusal() },
		Do:      func(*rows[attachment]) tea.Cmd { return p.ask() },
	})
	p.Refresh()
	return p
}

// attachmentColumns returns the columns; ends says whether a volume's claim is being deleted.
func attachmentColumns(w *World, ends func(attachment) bool) []widget.Column[attachment] {
	word := func(title string, priority int, of func(attachment) string) widget.Column[attachment] {
		return widget.Column[attachment]{
			Title: title, Max: 63, Priority: priority,
			Cell: func(a attachment, _ time.Time) widget.Cell { return widget.Cell{Text: of(a)} },
		}
	}
	name := word("VOLUME", 0, func(a attachment) string { return a.Name })
	name.First = true
	size := word("SIZE", 2, attachedSize)
	size.Right = true
	return []widget.Column[attachment]{
		name,
		word("CLAIM", 1, func(a attachment) string { return a.Claim }),
		size,
		{Title: "STATUS", Max: 32, Cell: func(a attachment, _ time.Time) widget.Cell {
			switch {
			case ends(a):
				return state(w.Theme, "claim "+claims.Terminating, theme.Bad)
			case a.Leaving:
				return state(w.Theme, describe.Phase(a.Status), theme.Bad)
			case a.Status == nil:
				return state(w.Theme, "not in the guest", theme.Dim)
			case a.Status.Phase == v1.VolumeReady:
				return state(w.Theme, string(v1.VolumeReady), theme.Good)
			}
			if hotplug.Stuck(a.Status) {
				return state(w.Theme, describe.Phase(a.Status), theme.Bad)
			}
			return state(w.Theme, cmp.Or(string(a.Status.Phase), "Unknown"), theme.Busy)
		}},
		// The guest names its disks as it finds them, and not as libvirt's target is: it finds this one by its serial.
		word("SERIAL", 2, func(a attachment) string { return a.Serial }),
		word("TARGET", 4, func(a attachment) string {
			if a.Status == nil {
				return a.Bus
			}
			return strings.TrimSpace(a.Bus + " " + a.Status.Target)
		}),
		word("LASTS", 1, func(a attachment) string {
			switch {
			case a.Leaving:
				return "on its way out"
			case a.Instance:
				return "until restart"
			}
			return "for good"
		}),
	}
}

// attachedSize returns a volume's size; empty where that is not known.
func attachedSize(a attachment) string {
	switch {
	case a.Status == nil:
		return ""
	case a.Status.Size > 0:
		return resource.NewQuantity(a.Status.Size, resource.BinarySI).String()
	case a.Status.PersistentVolumeClaimInfo != nil:
		if size, ok := a.Status.PersistentVolumeClaimInfo.Capacity["storage"]; ok {
			return size.String()
		}
	}
	return ""
}

// believed returns the state of what was read.
func (p *unplugging) believed() store.State {
	switch {
	case p.objects.err != nil:
		return store.State{Synced: !p.good.IsZero(), Err: p.objects.err, Since: p.good}
	case p.good.IsZero():
		return store.State{}
	}
	return connection(p.world)
}

// Start reads the machine.
func (p *unplugging) Start() tea.Cmd { return p.Wants() }

// Refresh reads the machine's row anew.
func (p *unplugging) Refresh() {
	p.machine, p.gone = p.world.again(p.machine)
	p.rows.Refresh()
}

// Wants reads the machine when it has changed.
func (p *unplugging) Wants() tea.Cmd {
	m, actions := p.machine, p.world.Actions
	if !p.objects.wanted(m.Revision+" of "+m.Key().String(), p.world.Now()) {
		return nil
	}
	return limited(func(ctx context.Context) tea.Msg {
		details, err := actions.Machine(ctx, m.Key(), m.Instance)
		out := pluggedRead{page: p, details: details, err: err}
		if err == nil {
			if found, _, err := actions.Claims(ctx, m.Namespace); err == nil { // only which of them are being deleted
				out.claims = found
			}
		}
		return out
	})
}

// Update takes what was read.
func (p *unplugging) Update(msg tea.Msg) tea.Cmd {
	m, ok := msg.(pluggedRead)
	if !ok || m.page != p {
		return nil
	}
	p.objects.done(m.err, p.world.Now())
	if m.err != nil {
		return nil
	}
	p.good, p.attachments, p.ends = p.world.Now(), nil, map[string]bool{}
	for i := range m.claims {
		p.ends[m.claims[i].Name] = m.claims[i].Status == claims.Terminating
	}
	for _, a := range volume.Attachments(m.details.VM, m.details.VMI) {
		p.attachments = append(p.attachments, &a)
	}
	p.Refresh()
	return p.Wants() // it may have changed meanwhile
}

func (p *unplugging) refusal() string {
	if p.world.ReadOnly {
		return ReadOnly
	}
	if p.gone {
		return "the machine has been deleted"
	}
	if why := p.none(); why != "" {
		return why
	}
	for _, a := range p.table.Marked() {
		if a.Leaving {
			return fmt.Sprintf("volume %s was unplugged already: %s", a.Name, volume.Said(a.Name, a.Status.Message))
		}
		why := p.world.Actions.ForbiddenTo(p.machine.Namespace, "update", volumesOf(a.Instance)+"/removevolume")
		if why != "" {
			return why
		}
	}
	return ""
}

// ask asks before the marked volumes, or the one under the cursor, are unplugged.
func (p *unplugging) ask() tea.Cmd {
	key, machine, actions := p.machine.Key(), target(p.machine), p.world.Actions
	var requests []volume.Options
	var lines, names, lost []string
	there := false // the guest may use one
	for _, a := range p.table.Marked() {
		o := volume.Options{Volume: a.Name, Instance: a.Instance}
		requests = append(requests, o)
		lines = append(lines,
			p.world.Line(append(volumeWords(p.world, "removevolume", key, &o), "--namespace", key.Namespace)...))
		names = append(names, fmt.Sprintf("volume %s (claim %s)", a.Name, a.Claim))
		there = there || a.Status != nil && a.Status.Phase == v1.VolumeReady
		if p.ends[a.Claim] {
			lost = append(lost, a.Claim)
		}
	}
	slices.Sort(names)
	what := strings.Join(names, ", ")
	_, hidden := p.table.Marks()
	question := fmt.Sprintf("Unplug %s from %s?", what, key) + unseen("volume", hidden)
	if there {
		question += " Unmount it in the guest first: a disk that is in use is pulled out of it."
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		question += fmt.Sprintf(" Deletion of claim %s is under way: the data is lost.", strings.Join(lost, ", "))
	}
	return Send(Ask{Question: question, Task: Task{
		Line: strings.Join(lines, " && "),
		Do: func(ctx context.Context) error {
			var failed []error
			for _, o := range requests {
				failed = append(failed, actions.Unplug(ctx, machine, o))
			}
			return errors.Join(failed...)
		},
		Then: func(err error) tea.Msg {
			if err != nil { // it is shown, and the page stays
				return nil
			}
			return Back{Of: p, Notice: fmt.Sprintf("On its way out of %s: %s", key, what)}
		},
	}})
}
