package page

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Sizings is the page of instance types and preferences.
type Sizings struct{ rows[*store.Sizing] }

// NewSizings makes the page. What it shows is followed from then on.
func NewSizings(w *World) *Sizings {
	p := &Sizings{}
	if w.FollowSizings != nil {
		w.FollowSizings()
	}
	p.rows = rows[*store.Sizing]{
		world: w, title: "Instance types", what: "instance types and preferences",
		one:    "an instance type or preference",
		advice: "the usual ones come with `" + w.Program + " install --instancetypes`",
		state: func() store.State {
			var all []store.State
			for _, t := range w.Sizings {
				all = append(all, t.State())
			}
			return store.Worst(all...)
		}, read: func() []*store.Sizing {
			var all []*store.Sizing
			for _, t := range w.Sizings {
				all = append(all, t.Rows()...)
			}
			return all
		},
	}
	type column = widget.Column[*store.Sizing]
	p.table = widget.Table[*store.Sizing]{
		Columns: []column{
			{
				Title: "NAME", Max: 63, First: true,
				Cell: func(s *store.Sizing, _ time.Time) widget.Cell { return widget.Cell{Text: s.Name} },
			},
			{
				Title: "KIND",
				Cell:  func(s *store.Sizing, _ time.Time) widget.Cell { return widget.Cell{Text: sizingKind(s)} },
			},
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
			{
				Title: "AGE", Right: true, Priority: 2, Volatile: true,
				Cell: func(s *store.Sizing, now time.Time) widget.Cell {
					return widget.Cell{Text: age(s.Created, now), Role: theme.Dim}
				}, Compare: func(a, b *store.Sizing) int { return b.Created.Compare(a.Created) },
			},
			{Title: "DETAILS", Priority: 3, Flex: true, Cell: func(s *store.Sizing, _ time.Time) widget.Cell {
				return widget.Cell{Text: strings.Join(s.Details, ", "), Role: theme.Dim}
			}},
		},
		Key: (*store.Sizing).Key, Labels: func(s *store.Sizing) map[string]string { return s.Labels }, Now: w.Now,
		Theme: w.Theme,
	}
	p.bind(keymap.Binding[*rows[*store.Sizing]]{
		Keys: []string{"enter", "y"}, Name: "YAML", Help: "the object as the server has it",
		Allowed: (*rows[*store.Sizing]).none,
		Do: p.open(func(s *store.Sizing) Page {
			return newYAML(w, s.Resource, store.Key{Namespace: s.Namespace, Name: s.Name})
		}),
	})
	p.Refresh()
	return p
}

func sizingKind(s *store.Sizing) string {
	if s.Preference {
		return "preference"
	}
	return "instance type"
}
