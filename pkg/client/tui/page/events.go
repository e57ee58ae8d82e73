package page

import (
	"cmp"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/events"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Events is the page of what happened.
type Events struct{ rows[*store.Event] }

// NewEvents makes the page.
func NewEvents(w *World) *Events {
	p := &Events{}
	p.rows = rows[*store.Event]{
		world: w, title: "Events", what: "events", read: w.Events.Rows,
		state: func() store.State { return w.Events.State() },
	}
	type column = widget.Column[*store.Event]
	text := func(of func(*store.Event) string) func(*store.Event, time.Time) widget.Cell {
		return func(e *store.Event, _ time.Time) widget.Cell { return widget.Cell{Text: of(e)} }
	}
	p.table = widget.Table[*store.Event]{
		Columns: []column{
			{Title: "AGE", Right: true, Volatile: true, Cell: func(e *store.Event, now time.Time) widget.Cell {
				return widget.Cell{Text: age(e.Last, now), Role: theme.Dim}
			}, Compare: func(a, b *store.Event) int { return b.Last.Compare(a.Last) }},
			{Title: "NAMESPACE", Max: 20, Priority: 3, Cell: text(func(e *store.Event) string { return e.Namespace })},
			{Title: "REASON", Max: 36, Cell: func(e *store.Event, _ time.Time) widget.Cell {
				return widget.Cell{Text: e.Reason, Role: eventRole(e)}
			}},
			{Title: "OBJECT", Max: 40, Priority: 1, Cell: text(object)},
			{
				Title: "COUNT", Right: true, Priority: 2, Volatile: true,
				Cell:    text(func(e *store.Event) string { return fmt.Sprint(e.Count) }),
				Compare: func(a, b *store.Event) int { return cmp.Compare(a.Count, b.Count) },
			},
			{Title: "MESSAGE", Flex: true, Cell: text(func(e *store.Event) string { return e.Message })},
		},
		Key: (*store.Event).Key, Now: w.Now, Theme: w.Theme,
	}
	p.bind(keymap.Binding[*rows[*store.Event]]{
		Keys: []string{"enter"}, Name: "machine", Help: "the machine that it happened to",
		Allowed: func(*rows[*store.Event]) string {
			key, ok := p.machine()
			switch {
			case key.Name == "":
				return "it is not of a virtual machine"
			case !ok:
				return "its machine is not there any more"
			}
			return ""
		}, Do: func(*rows[*store.Event]) tea.Cmd { return p.double() },
	})
	p.double = func() tea.Cmd {
		key, ok := p.machine()
		if !ok {
			return nil
		}
		return Send(Open{NewMachine(w, key)})
	}
	p.Refresh()
	return p
}

// machine returns the machine that the event under the cursor is about, also by its pod or migration, without a name
// where it is about something else; and whether that machine exists.
func (p *Events) machine() (key store.Key, there bool) {
	e := p.current()
	if e == nil {
		return store.Key{}, false
	}
	key = store.Key{Namespace: e.Namespace, Name: e.Object}
	moves := map[string]string{}
	if m := p.world.Migrations.Get(key); m != nil {
		moves[m.Name] = m.Machine
	}
	key.Name = events.MachineOf(e.Kind, e.Object, moves)
	return key, key.Name != "" && p.world.Machines.Get(key) != nil
}

func object(e *store.Event) string { return short(e.Kind) + "/" + e.Object }

func eventRole(e *store.Event) theme.Role {
	if e.Type == "Warning" {
		return theme.Warn
	}
	return theme.Text
}
