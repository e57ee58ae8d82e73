package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/filter"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// rows is what all pages with a table have: the table, the rows it is of, the keys, and what it says when it is empty.
type rows[R any] struct {
	world *World
	table widget.Table[R]
	state func() store.State
	// read are the rows as they are now.
	read func() []R
	// title is how the page is called; what the rows are, for "No … here".
	title, what string
	// double is what a double click does.
	double func() tea.Cmd
	keys   keymap.Map[*rows[R]]
}

// bind gives the page its keys, besides those that move.
func (p *rows[R]) bind(keys ...keymap.Binding[*rows[R]]) {
	if !slices.ContainsFunc(keys, func(b keymap.Binding[*rows[R]]) bool { return slices.Contains(b.Keys, copyKey) }) {
		keys = append(keys, keymap.Binding[*rows[R]]{
			Keys: []string{copyKey}, Name: "copy",
			Help: "copy a field of the row", Allowed: (*rows[R]).none, Quiet: true, Do: func(p *rows[R]) tea.Cmd {
				return Send(Open{newCopying(p.world, "a "+strings.TrimSuffix(p.what, "s"), p.fields(p.current()), nil)})
			},
		})
	}
	p.keys = append(keys, moves[R]()...)
}

// fields are what can be copied of a row: its cells, and all of them.
func (p *rows[R]) fields(row R) []field {
	var out []field
	titles, texts := p.table.Fields(row)
	for i, text := range texts {
		out = append(out, field{name: strings.ToLower(titles[i]), value: text})
	}
	return append(out, field{name: "row", value: strings.Join(texts, "\t")})
}

// SetFilter chooses among the rows.
func (p *rows[R]) SetFilter(f filter.Filter) { p.table.SetFilter(f) }

// Filter is what chooses among the rows.
func (p *rows[R]) Filter() filter.Filter { return p.table.Filter() }

// State says how much the rows can be believed.
func (p *rows[R]) State() store.State { return p.state() }

// Update has nothing to hear.
func (p *rows[R]) Update(tea.Msg) tea.Cmd { return nil }

// Refresh reads the rows anew.
func (p *rows[R]) Refresh() { p.table.SetRows(p.read()) }

// Key does what a key is bound to.
func (p *rows[R]) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints are the page's keys.
func (p *rows[R]) Hints() []keymap.Hint { return p.keys.Hints(p) }

// Title is the page's name and how many rows it shows, of how many.
func (p *rows[R]) Title() string {
	shown, all := p.table.Len()
	if shown != all {
		return fmt.Sprintf("%s %d/%d", p.title, shown, all)
	}
	return fmt.Sprintf("%s %d", p.title, all)
}

// current is the row under the cursor, or nothing; none says so.
func (p *rows[R]) current() R {
	r, _ := p.table.Current()
	return r
}

func (p *rows[R]) none() string {
	if shown, _ := p.table.Len(); shown == 0 {
		return "there is nothing here"
	}
	return ""
}

// open makes a key of a page that a row opens.
func (p *rows[R]) open(of func(R) Page) func(*rows[R]) tea.Cmd {
	p.double = func() tea.Cmd {
		if p.none() != "" {
			return nil
		}
		return Send(Open{of(p.current())})
	}
	return func(*rows[R]) tea.Cmd { return p.double() }
}

// Click moves the cursor, sorts, or opens.
func (p *rows[R]) Click(x, y int, twice bool) tea.Cmd {
	if p.table.Click(x, y) && y > 0 && twice && p.double != nil {
		return p.double()
	}
	return nil
}

// View draws the table, or says why there is none.
func (p *rows[R]) View(width, height int) string {
	if shown, all := p.table.Len(); shown == 0 {
		return empty(p.world.Theme, p.state(), p.what, all, p.table.Filter(), width)
	}
	return p.table.View(width, height)
}

func empty(t *theme.Theme, state store.State, what string, all int, f filter.Filter, width int) string {
	switch {
	case state.Err != nil && !state.Synced:
		var lines []string
		for _, l := range widget.Wrap("  "+widget.Harmless(state.Err.Error()), width-1, 0) {
			lines = append(lines, t.Paint(theme.Bad, l))
		}
		return strings.Join(lines, "\n")
	case !state.Synced:
		return t.Paint(theme.Dim, "  Reading "+what+" …")
	case all > 0:
		return t.Paint(theme.Dim, widget.Pad(t, "  None of the "+what+" matches "+f.String()+"; esc shows all", width))
	}
	return t.Paint(theme.Dim, "  There are no "+what+" here")
}

// moves are the keys that move in a table of any rows.
func moves[R any]() keymap.Map[*rows[R]] {
	bind := func(help string, do func(*widget.Table[R]), keys ...string) keymap.Binding[*rows[R]] {
		return keymap.Binding[*rows[R]]{
			Keys: keys, Help: help, Quiet: true,
			Do: func(p *rows[R]) tea.Cmd { do(&p.table); return nil },
		}
	}
	type table = *widget.Table[R]
	return keymap.Map[*rows[R]]{
		bind("one row down", func(t table) { t.Move(1) }, "down", "j"),
		bind("one row up", func(t table) { t.Move(-1) }, "up", "k"),
		bind("one page down", func(t table) { t.Page(1) }, "pgdown", "ctrl+f"),
		bind("one page up", func(t table) { t.Page(-1) }, "pgup", "ctrl+b"),
		bind("the first row", table.Top, "home", "g"),
		bind("the last row", table.Bottom, "end", "G"),
		bind("sort by the next column", func(t table) { c, _ := t.Sorted(); t.Sort(c + 1) }, ">"),
		bind("sort by the column before", func(t table) { c, _ := t.Sorted(); t.Sort(c - 1) }, "<"),
		bind("turn the order round", func(t table) { c, _ := t.Sorted(); t.Sort(c) }, "o"),
		bind("mark the row", table.Mark, "space"),
		bind("mark all that are shown", table.MarkAll, "*"),
	}
}

// age is as kubectl shows it.
func age(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return humanDuration(now.Sub(at))
}
