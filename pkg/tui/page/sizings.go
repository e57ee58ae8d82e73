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

// Sizings is the page of instance types and preferences.
type Sizings struct {
	rows[*store.Sizing]
	keys keymap.Map[*Sizings]
}

// NewSizings makes the page. What it shows is followed from then on.
func NewSizings(w *World) *Sizings {
	p := &Sizings{}
	if w.FollowSizings != nil {
		w.FollowSizings()
	}
	p.rows = rows[*store.Sizing]{world: w, what: "instance types and preferences", state: func() store.State {
		var all []store.State
		for _, t := range w.Sizings {
			all = append(all, t.State())
		}
		return store.Worst(all...)
	}}
	type column = widget.Column[*store.Sizing]
	p.table = widget.Table[*store.Sizing]{
		Columns: []column{
			{Title: "NAME", Max: 48, Cell: func(s *store.Sizing, _ time.Time) widget.Cell { return widget.Cell{Text: s.Name} }},
			{Title: "KIND", Cell: func(s *store.Sizing, _ time.Time) widget.Cell { return widget.Cell{Text: sizingKind(s)} }},
			{Title: "NAMESPACE", Max: 24, Priority: 1, Cell: func(s *store.Sizing, _ time.Time) widget.Cell {
				return widget.Cell{Text: cmp.Or(s.Namespace, "(cluster)")}
			}},
			{Title: "CPUS", Right: true, Cell: func(s *store.Sizing, _ time.Time) widget.Cell {
				if s.CPUs == 0 {
					return widget.Cell{}
				}
				return widget.Cell{Text: fmt.Sprint(s.CPUs)}
			}, Compare: func(a, b *store.Sizing) int { return cmp.Compare(a.CPUs, b.CPUs) }},
			{Title: "MEMORY", Right: true, Cell: func(s *store.Sizing, _ time.Time) widget.Cell {
				if s.Memory.IsZero() {
					return widget.Cell{}
				}
				return widget.Cell{Text: s.Memory.String()}
			}, Compare: func(a, b *store.Sizing) int { return a.Memory.Cmp(b.Memory) }},
			{Title: "AGE", Right: true, Priority: 2, Volatile: true, Cell: func(s *store.Sizing, now time.Time) widget.Cell {
				return widget.Cell{Text: age(s.Created, now), Role: theme.Dim}
			}, Compare: func(a, b *store.Sizing) int { return b.Created.Compare(a.Created) }},
			{Title: "DETAILS", Priority: 3, Flex: true, Cell: func(s *store.Sizing, _ time.Time) widget.Cell {
				return widget.Cell{Text: strings.Join(s.Details, ", "), Role: theme.Dim}
			}},
		},
		Key: (*store.Sizing).Key, Labels: func(s *store.Sizing) map[string]string { return s.Labels }, Now: w.Now, Theme: w.Theme,
	}
	p.double = p.open
	p.keys = append(keymap.Map[*Sizings]{
		{Keys: []string{"enter", "y"}, Name: "YAML", Help: "the object as the server has it", Allowed: func(p *Sizings) string {
			if _, ok := p.table.Current(); !ok {
				return "there is none here"
			}
			return ""
		}, Do: (*Sizings).open},
	}, moves[*Sizings]()...)
	p.Refresh()
	return p
}

func sizingKind(s *store.Sizing) string {
	if s.Preference {
		return "preference"
	}
	return "instance type"
}

func (p *Sizings) open() tea.Cmd {
	s, ok := p.table.Current()
	if !ok {
		return nil
	}
	return Send(Open{newYAML(p.world, s.Resource, store.Key{Namespace: s.Namespace, Name: s.Name})})
}

// Title is the page's name and how many there are.
func (p *Sizings) Title() string {
	shown, all := p.table.Len()
	return counted("Instance types", shown, all)
}

// Refresh reads the rows anew.
func (p *Sizings) Refresh() {
	var all []*store.Sizing
	for _, t := range p.world.Sizings {
		all = append(all, t.Rows()...)
	}
	p.table.SetRows(all)
}

// Key does what a key is bound to.
func (p *Sizings) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints are the page's keys.
func (p *Sizings) Hints() []keymap.Hint { return p.keys.Hints(p) }
