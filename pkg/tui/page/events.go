package page

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/store"
	"github.com/virtkit/virtkit/pkg/tui/keymap"
	"github.com/virtkit/virtkit/pkg/tui/theme"
	"github.com/virtkit/virtkit/pkg/tui/widget"
)

// Events is the page of what happened.
type Events struct {
	rows[*store.Event]
	keys keymap.Map[*Events]
}

// NewEvents makes the page.
func NewEvents(w *World) *Events {
	p := &Events{}
	p.rows = rows[*store.Event]{world: w, what: "events", state: func() store.State { return w.Events.State() }}
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
			{Title: "REASON", Max: 28, Cell: func(e *store.Event, _ time.Time) widget.Cell {
				return widget.Cell{Text: e.Reason, Role: eventRole(e)}
			}},
			{Title: "OBJECT", Max: 40, Priority: 1, Cell: text(object)},
			{
				Title: "COUNT", Right: true, Priority: 2, Volatile: true, Cell: text(func(e *store.Event) string { return fmt.Sprint(e.Count) }),
				Compare: func(a, b *store.Event) int { return cmp.Compare(b.Count, a.Count) },
			},
			{Title: "MESSAGE", Flex: true, Cell: text(func(e *store.Event) string { return e.Message })},
		},
		Key: (*store.Event).Key, Now: w.Now, Theme: w.Theme,
	}
	p.keys = append(keymap.Map[*Events]{
		{Keys: []string{"enter"}, Name: "machine", Help: "the machine that it happened to", Allowed: func(p *Events) string {
			if _, ok := p.machine(); !ok {
				return "it is not of a virtual machine"
			}
			return ""
		}, Do: (*Events).open},
	}, moves[*Events]()...)
	p.double = p.open
	p.Refresh()
	return p
}

// machine is the machine that the event under the cursor is about.
func (p *Events) machine() (store.Key, bool) {
	e, ok := p.table.Current()
	if !ok {
		return store.Key{}, false
	}
	key := store.Key{Namespace: e.Namespace, Name: e.Object}
	return key, p.world.Machines.Get(key) != nil
}

func (p *Events) open() tea.Cmd {
	key, ok := p.machine()
	if !ok {
		return nil
	}
	return Send(Open{NewMachine(p.world, key)})
}

// Title is the page's name and how many events there are.
func (p *Events) Title() string {
	shown, all := p.table.Len()
	return counted("Events", shown, all)
}

// Refresh reads the events anew.
func (p *Events) Refresh() { p.table.SetRows(p.world.Events.Rows()) }

// Key does what a key is bound to.
func (p *Events) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints are the page's keys.
func (p *Events) Hints() []keymap.Hint { return p.keys.Hints(p) }

func object(e *store.Event) string { return strings.ToLower(e.Kind) + "/" + e.Object }

func eventRole(e *store.Event) theme.Role {
	if e.Type == "Warning" {
		return theme.Warn
	}
	return theme.Text
}

// eventLine is an event in a list of those of one machine.
func eventLine(t *theme.Theme, e *store.Event, now time.Time, width int) string {
	count := ""
	if e.Count > 1 {
		count = fmt.Sprintf(" (%d times)", e.Count)
	}
	when := fmt.Sprintf("%5s  ", age(e.Last, now))
	return t.Paint(theme.Dim, when) + t.Paint(eventRole(e), widget.Pad(t, widget.Harmless(e.Reason+": "+e.Message+count), max(10, width-len(when))))
}
