package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// copyKey opens a choice of what to copy.
const copyKey = "Y"

// field is something that can be copied.
type field struct {
	at          int
	name, value string
}

// copying is a choice of what to copy, of something.
type copying struct {
	rows[*field]
	fields []*field
	more   func(context.Context) ([]field, error)
}

// fieldsRead are more fields, which had to be read.
type fieldsRead struct {
	page   *copying
	fields []field
	err    error
}

// newCopying makes the page of fields, and of more that are read; nil reads none. Fields without a value are left out.
func newCopying(w *World, of string, fields []field, more func(context.Context) ([]field, error)) *copying {
	p := &copying{more: more}
	p.add(fields)
	p.rows = rows[*field]{
		world: w, title: "copy of " + of, what: "fields", state: func() store.State { return connection(w) },
		read: func() []*field { return p.fields },
	}
	p.table = widget.Table[*field]{
		Columns: []widget.Column[*field]{
			{Title: "FIELD", Max: 30, Cell: func(f *field, _ time.Time) widget.Cell {
				return widget.Cell{Text: f.name}
			}, Compare: func(a, b *field) int { return cmp.Compare(a.at, b.at) }},
			{
				Title: "VALUE", Flex: true,
				Cell: func(f *field, _ time.Time) widget.Cell { return widget.Cell{Text: f.value} },
			},
		},
		Key: func(f *field) store.Key { return store.Key{Name: fmt.Sprintf("%04d", f.at)} }, Now: w.Now, Theme: w.Theme,
	}
	p.double = func() tea.Cmd {
		f := p.current()
		if f == nil {
			return nil
		}
		return Send(Copy{Text: f.value, What: f.name, Of: p})
	}
	p.bind(keymap.Binding[*rows[*field]]{
		Keys: []string{"enter", copyKey}, Name: "copy", Help: "put the value on the clipboard of your terminal",
		Allowed: (*rows[*field]).none,
		Do:      func(*rows[*field]) tea.Cmd { return p.double() },
	})
	p.Refresh()
	return p
}

func (p *copying) add(fields []field) {
	for _, f := range fields {
		if f.value != "" {
			f.at = len(p.fields)
			p.fields = append(p.fields, &f)
		}
	}
}

// Start reads more fields.
func (p *copying) Start() tea.Cmd {
	if p.more == nil {
		return nil
	}
	return limited(func(ctx context.Context) tea.Msg {
		fields, err := p.more(ctx)
		return fieldsRead{p, fields, err}
	})
}

// Update takes what was read.
func (p *copying) Update(msg tea.Msg) tea.Cmd {
	m, ok := msg.(fieldsRead)
	if !ok || m.page != p {
		return nil
	}
	p.add(m.fields)
	p.Refresh()
	if m.err != nil {
		return Send(Notice{Text: p.world.Say(m.err), Bad: true})
	}
	return nil
}

// newMachineCopying returns the page on which one chooses what to copy of a machine.
func newMachineCopying(w *World, m *store.Machine) Page {
	fields := []field{
		{name: "name", value: m.Name},
		{name: "namespace", value: m.Namespace},
		{name: "namespace and name", value: m.Key().String()},
		{name: "node", value: m.Node},
	}
	for _, ip := range m.IPs {
		fields = append(fields, field{name: "address", value: ip})
	}
	fields = append(fields, field{name: "status", value: m.Status}, field{name: "trouble", value: m.Trouble},
		field{name: "guest OS", value: m.GuestOS},
		field{name: "labels", value: labels(m.Labels)}, field{name: "instance UID", value: string(m.UID)},
		field{
			name: "row",
			value: strings.Join([]string{
				m.Namespace, m.Name, m.Status, m.Node, strings.Join(m.IPs, ","), m.GuestOS,
				conditions(m, w.moves()[m.Key()]),
			}, "\t"),
		})
	return newCopying(w, m.Key().String(), fields, func(ctx context.Context) ([]field, error) {
		details, err := w.Actions.Machine(ctx, m.Key(), m.Instance)
		more := detailFields(details)
		text, yamlErr := w.Actions.Object(ctx, resourceOf(m), m.Namespace, m.Name)
		return append(more, field{name: "YAML", value: text}), errors.Join(err, yamlErr)
	})
}

// detailFields returns the fields that a machine's row does not have.
func detailFields(d *Details) []field {
	if d == nil {
		return nil
	}
	var out []field
	if d.VM != nil {
		out = append(out, field{name: "UID", value: string(d.VM.UID)})
	}
	if d.VMI != nil {
		for _, i := range d.VMI.Status.Interfaces {
			out = append(out, field{name: "MAC of " + cmp.Or(i.Name, i.InterfaceName), value: i.MAC})
		}
	}
	for _, disk := range describe.Disks(d.VM, d.VMI) {
		source := disk.Source
		if _, what, ok := strings.Cut(source, " "); ok { // without the kind of volume
			source = what
		}
		out = append(out, field{name: "source of disk " + disk.Name, value: source})
	}
	return out
}
