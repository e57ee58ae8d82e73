package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
	// title is the page's title; what names the rows in the plural, for "There are no … here"; advice says what to do
	// when there are none.
	title, what, advice string
	// one is a row with its article, where that is not "a " followed by what without its s.
	one string
	// lacks says that there are no rows, for a page whose rows are one object's, such as the snapshots of a VM.
	lacks func() string
	// marks says that the page's actions work on all marked rows. On other pages none can be marked.
	marks bool
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
				return Send(Open{newCopying(p.world, p.article(), p.fields(p.current()), nil)})
			},
		})
	}
	p.keys = append(keys, moves[R]()...)
	p.table.Return(p.world.left[p.title])
}

// article returns one of the rows with its article, such as "a node".
func (p *rows[R]) article() string {
	if p.one != "" {
		return p.one
	}
	one := strings.TrimSuffix(p.what, "s")
	if strings.ContainsAny(one[:1], "aeio") { // not u: a unit
		return "an " + one
	}
	return "a " + one
}

// Close takes note of where the user was, for when the page is opened again.
func (p *rows[R]) Close() {
	if p.world.left == nil {
		p.world.left = map[string]widget.Place{}
	}
	p.world.left[p.title] = p.table.Place()
}

// fields returns what can be copied of a row: each of its cells, and all of them together.
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

// Filter chooses among the rows.
func (p *rows[R]) Filter() filter.Filter { return p.table.Filter() }

// Searched returns the filter as it was typed.
func (p *rows[R]) Searched() string { return p.table.Filter().String() }

// NextMatch goes to the next of the rows that the filter shows, round the ends.
func (p *rows[R]) NextMatch(by int) string {
	at, of := p.table.Step(by)
	if of == 0 {
		return "Nothing here matches"
	}
	return fmt.Sprintf("%d of %d", at, of)
}

// State returns how much the rows can be believed.
func (p *rows[R]) State() store.State { return p.state() }

// Update does nothing: the page has no messages.
func (p *rows[R]) Update(tea.Msg) tea.Cmd { return nil }

// Refresh reads the rows anew.
func (p *rows[R]) Refresh() { p.table.SetRows(p.read()) }

// Key does what a key is bound to.
func (p *rows[R]) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *rows[R]) Hints() []keymap.Hint { return p.keys.Hints(p) }

// Title returns the page's name and how many rows it shows, of how many, by which filter, and how many of them are
// marked.
func (p *rows[R]) Title() string {
	shown, all := p.table.Len()
	if !p.state().Synced {
		return p.title
	}
	title := fmt.Sprintf("%s %d", p.title, all)
	if shown != all {
		title = fmt.Sprintf("%s %d/%d", p.title, shown, all)
	}
	if f := p.table.Filter(); !f.Empty() {
		title += " that match " + f.String()
	}
	if marked, hidden := p.table.Marks(); hidden > 0 {
		title += fmt.Sprintf(", %d marked, %d of them hidden", marked, hidden)
	} else if marked > 0 {
		title += fmt.Sprintf(", %d marked", marked)
	}
	return title
}

// current returns the row under the cursor, the zero value when there is none.
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

// open makes a key of a page that a row opens. A double click does what the first of these does.
func (p *rows[R]) open(of func(R) Page) func(*rows[R]) tea.Cmd {
	do := func() tea.Cmd {
		if p.none() != "" {
			return nil
		}
		return Send(Open{of(p.current())})
	}
	if p.double == nil {
		p.double = do
	}
	return func(*rows[R]) tea.Cmd { return do() }
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
		lacks := ""
		if p.lacks != nil {
			lacks = p.lacks()
		}
		if all > 0 && p.state().Synced {
			return unmatched(p.world, p.what, p.table.Filter(), p.table.Unsearched(), width)
		}
		return empty(p.world, p.state(), p.what, lacks, p.advice, width)
	}
	return p.table.View(width, height)
}

// empty returns why a page of rows has none, and what to do about it. lacks says why when the rows are one object's,
// such as a VM's snapshots; it is empty when they are those of a namespace or of all namespaces.
func empty(w *World, state store.State, what, lacks, advice string, width int) string {
	t := w.Theme
	said := func(role theme.Role, text string) string { return strings.Join(paragraph(t, role, text, width), "\n") }
	switch {
	case state.Err != nil && !state.Synced:
		return said(theme.Bad, Capital(w.Say(state.Err))) + "\n\n" + said(theme.Dim, wayOut(what, state.Err))
	case !state.Synced:
		return said(theme.Dim, "Reading "+what+" "+t.Ellipsis)
	}
	where := " here"
	if lacks == "" && what != "nodes" {
		lacks, advice = w.lacking(what, advice)
	}
	if lacks == "" && w.Namespace != "" && what != "nodes" {
		where = " in namespace " + w.Namespace
		if advice != "" {
			advice += "; "
		}
		advice += "0 shows all namespaces"
	}
	if lacks == "" {
		lacks = "There are no " + what + where
	}
	if state.Stale() {
		return said(theme.Bad, Capital(w.Say(state.Err))) + "\n\n" +
			said(theme.Dim, "There were none of the "+what+" before that. "+wayOut(what, state.Err))
	}
	text := said(theme.Text, lacks)
	if advice != "" {
		text += "\n\n" + said(theme.Dim, Capital(advice))
	}
	return text
}

// unmatched returns the text that a filter leaves none of the rows, and which columns it does not search.
func unmatched(w *World, what string, f filter.Filter, unsearched []string, width int) string {
	text := "None of the " + what + " matches " + f.String() + "; esc shows all"
	if !f.Labels() && len(unsearched) > 0 {
		text += ". What moves in " + strings.Join(unsearched, ", ") + " is not searched"
	}
	return strings.Join(paragraph(w.Theme, theme.Dim, text, width), "\n")
}

// lacking returns, for a namespace that is being deleted or does not exist, why it has none of the rows, and what to do
// instead.
func (w *World) lacking(what, advice string) (lacks, instead string) {
	if w.Namespace == "" || w.NamespacePhase == nil {
		return "", advice
	}
	const others = ":ns NAME shows another, 0 shows all namespaces"
	switch w.NamespacePhase() {
	case NamespaceGone:
		return "There is no namespace " + w.Namespace, others
	case NamespaceDeleting:
		return "Namespace " + w.Namespace + " is being deleted, and has no " + what + "; none can be made in it", others
	}
	return "", advice
}

// wayOut returns what can be done where rows cannot be read.
func wayOut(what string, err error) string {
	switch {
	case apierrors.IsForbidden(err) && what == "nodes": // which are in no namespace
		return "The other pages need no right to it. :context shows another cluster; q leaves"
	case apierrors.IsForbidden(err):
		return ":namespace NAME shows a namespace that you may read, :context another cluster; q leaves"
	}
	return "It is asked again every few seconds. 5 examines why, :context shows another cluster, q leaves"
}

// moves returns the keys that move in a table of any rows.
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
		marking(bind("mark the row", table.Mark, "space")),
		marking(bind("mark all that are shown, or take their marks away", table.MarkAll, "*")),
		marking(bind("take all marks away, those of rows that a filter hides too", table.Unmark, "u")),
	}
}

// marking makes a key one of the pages that have marks.
func marking[R any](b keymap.Binding[*rows[R]]) keymap.Binding[*rows[R]] {
	b.Allowed = func(p *rows[R]) string {
		if p.marks {
			return ""
		}
		return "what one does here is for the row under the cursor"
	}
	return b
}

// age returns the time since at, as kubectl shows it.
func age(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return humanDuration(now.Sub(at))
}
