package page

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/store"
	"github.com/virtkit/virtkit/pkg/tui/filter"
	"github.com/virtkit/virtkit/pkg/tui/keymap"
	"github.com/virtkit/virtkit/pkg/tui/theme"
	"github.com/virtkit/virtkit/pkg/tui/widget"
)

// rows is what all pages with a table have: the table, the keys that move in it, and what it says when it is empty.
type rows[R any] struct {
	world *World
	table widget.Table[R]
	state func() store.State
	// what the rows are, for "No … here".
	what string
	// double is what a double click does.
	double func() tea.Cmd
}

func (p *rows[R]) SetFilter(f filter.Filter) { p.table.SetFilter(f) }
func (p *rows[R]) Filter() filter.Filter     { return p.table.Filter() }
func (p *rows[R]) State() store.State        { return p.state() }
func (p *rows[R]) Update(tea.Msg) tea.Cmd    { return nil }

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
		return t.Paint(theme.Bad, widget.Pad(t, "  "+widget.Harmless(state.Err.Error()), width))
	case !state.Synced:
		return t.Paint(theme.Dim, "  Reading "+what+" …")
	case all > 0:
		return t.Paint(theme.Dim, widget.Pad(t, "  None of the "+what+" matches "+f.String()+"; esc shows all", width))
	}
	return t.Paint(theme.Dim, "  There are no "+what+" here")
}

// moves are the keys that move in a table of any rows.
func moves[M interface{ cursor() mover }]() keymap.Map[M] {
	bind := func(help string, do func(mover), keys ...string) keymap.Binding[M] {
		return keymap.Binding[M]{Keys: keys, Help: help, Quiet: true, Do: func(m M) tea.Cmd { do(m.cursor()); return nil }}
	}
	return keymap.Map[M]{
		bind("one row down", func(m mover) { m.Move(1) }, "down", "j"),
		bind("one row up", func(m mover) { m.Move(-1) }, "up", "k"),
		bind("one page down", func(m mover) { m.Page(1) }, "pgdown", "ctrl+f"),
		bind("one page up", func(m mover) { m.Page(-1) }, "pgup", "ctrl+b"),
		bind("the first row", func(m mover) { m.Top() }, "home", "g"),
		bind("the last row", func(m mover) { m.Bottom() }, "end", "G"),
		bind("sort by the next column", func(m mover) { c, _ := m.Sorted(); m.Sort(c + 1) }, ">"),
		bind("sort by the column before", func(m mover) { c, _ := m.Sorted(); m.Sort(c - 1) }, "<"),
		bind("turn the order round", func(m mover) { c, _ := m.Sorted(); m.Sort(c) }, "o"),
		bind("mark the row", func(m mover) { m.Mark() }, "space"),
		bind("mark all that are shown", func(m mover) { m.MarkAll() }, "*"),
	}
}

// mover is a table of any rows.
type mover interface {
	Move(int)
	Page(int)
	Top()
	Bottom()
	Sort(int)
	Sorted() (int, bool)
	Mark()
	MarkAll()
}

func (p *rows[R]) cursor() mover { return &p.table }

// age is as kubectl shows it.
func age(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return humanDuration(now.Sub(at))
}
