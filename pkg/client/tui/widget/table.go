// Package widget has the parts that pages are drawn with: the table, sparklines, bars and boxes. They know rows and
// sizes, nothing of machines.
package widget

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/filter"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// Cell is a piece of a row as it is shown.
type Cell struct {
	Text string
	Role theme.Role
	// Glyph stands before the text. It is not part of it for filters, copies and the order.
	Glyph string
	// Styled text has its own colours and is shown as it is; other text is made harmless first.
	Styled bool
}

// Column is one column of a table of rows R.
type Column[R any] struct {
	Title string
	// Max is the widest that it gets, in cells; 0 is no limit.
	Max int
	// Priority says which columns go first where there is no room: those with the highest. 0 never goes.
	Priority int
	Right    bool
	// First columns are cut only when columns of little importance have been left out: what a row is called.
	First bool
	// Flex columns take what room is left, and need little: one of a table's columns at most.
	Flex bool
	Cell func(r R, now time.Time) Cell
	// Compare orders by this column; nil means its text does.
	Compare func(a, b R) int
	// Volatile columns are not searched by filters, but for what Find returns of a row: what of it does not move.
	Volatile bool
	Find     func(R) string
}

// Table shows the rows that a filter leaves, sorted by a column. It draws only what is visible, and its cursor stays on
// its row wherever that moves.
type Table[R any] struct {
	Columns []Column[R]
	// Key names a row; Labels are what label selectors see.
	Key    func(R) store.Key
	Labels func(R) map[string]string
	// Parent names the row that a row stays below, whatever the order, if it is one of the table's; nil has no tree.
	// Parents are not below others.
	Parent func(R) (store.Key, bool)
	Now    func() time.Time
	Theme  *theme.Theme

	all, rows []R
	roots     map[store.Key]R
	filter    filter.Filter
	sort      int
	reversed  bool
	cursor    int
	at        store.Key // the row under the cursor
	offset    int
	height    int
	marks     map[store.Key]bool
	grown     []int // what the cells would like
	widths    []int // what they get
	shown     []int // the columns that there is room for
	widthsFor int   // the width of the screen that grown is for
}

// SetRows shows other rows.
func (t *Table[R]) SetRows(rows []R) {
	t.all = rows
	t.arrange()
}

// SetFilter shows the rows that match.
func (t *Table[R]) SetFilter(f filter.Filter) {
	t.filter = f
	t.grown = nil
	t.arrange()
}

// Filter chooses the rows.
func (t *Table[R]) Filter() filter.Filter { return t.filter }

// Sort sorts by a column, or turns the order round when it is sorted by it.
func (t *Table[R]) Sort(column int) {
	if column < 0 || column >= len(t.Columns) {
		return
	}
	t.reversed = column == t.sort && !t.reversed
	t.sort = column
	t.arrange()
}

// Sorted returns the column by which the table is sorted, and whether its order is reversed.
func (t *Table[R]) Sorted() (column int, reversed bool) { return t.sort, t.reversed }

// Len returns how many rows are shown, of how many.
func (t *Table[R]) Len() (shown, all int) { return len(t.rows), len(t.all) }

// Current returns the row under the cursor.
func (t *Table[R]) Current() (row R, ok bool) {
	if len(t.rows) == 0 {
		return row, false
	}
	return t.rows[t.cursor], true
}

// Fields returns a row's cells, whole: the columns' titles and what each has.
func (t *Table[R]) Fields(r R) (titles, texts []string) {
	now := t.Now()
	for _, c := range t.Columns {
		titles = append(titles, c.Title)
		texts = append(texts, strings.TrimSpace(Harmless(ansi.Strip(c.Cell(r, now).Text))))
	}
	return titles, texts
}

// Move moves the cursor by rows.
func (t *Table[R]) Move(by int) { t.moveTo(t.cursor + by) }

// Page moves the cursor by pages.
func (t *Table[R]) Page(by int) { t.moveTo(t.cursor + by*max(1, t.height-1)) }

// Step moves the cursor to the next row, or with -1 to the one before, round the ends. It reports where that is, from 1
// on, of how many.
func (t *Table[R]) Step(by int) (at, of int) {
	of = len(t.rows)
	if of == 0 {
		return 0, 0
	}
	t.moveTo((t.cursor + by + of) % of)
	return t.cursor + 1, of
}

// Top and Bottom move the cursor to the ends.
func (t *Table[R]) Top() { t.moveTo(0) }

// Bottom moves the cursor to the last row.
func (t *Table[R]) Bottom() { t.moveTo(len(t.rows) - 1) }

// Place is where a user is in a table: the row under the cursor, and the order.
type Place struct {
	Row      store.Key
	Column   int
	Reversed bool
}

// Place returns where the user is.
func (t *Table[R]) Place() Place { return Place{t.at, t.sort, t.reversed} }

// Return goes to where the user was; the row may come later.
func (t *Table[R]) Return(p Place) {
	t.at, t.sort, t.reversed = p.Row, min(p.Column, len(t.Columns)-1), p.Reversed
	t.arrange()
}

// Select moves the cursor to a row, if it is shown.
func (t *Table[R]) Select(key store.Key) {
	if i := slices.IndexFunc(t.rows, func(r R) bool { return t.Key(r) == key }); i >= 0 {
		t.moveTo(i)
	}
}

// Click moves the cursor to the row that View drew on a line, 0 being the header, and reports whether there is one. A
// click on the header sorts by the column at x.
func (t *Table[R]) Click(x, line int) bool {
	if line == 0 {
		left := markWidth
		for _, c := range t.shown {
			if x >= left && x < left+t.widths[c]+gap {
				t.Sort(c)
				return true
			}
			left += t.widths[c] + gap
		}
		return false
	}
	if i := t.offset + line - 1; i < len(t.rows) {
		t.moveTo(i)
		return true
	}
	return false
}

func (t *Table[R]) moveTo(i int) {
	t.cursor = max(0, min(i, len(t.rows)-1))
	if len(t.rows) > 0 {
		t.at = t.Key(t.rows[t.cursor])
	}
}

// arrange filters and sorts, takes the marks of rows that are gone away, and puts the cursor back on its row.
func (t *Table[R]) arrange() {
	t.rows = t.rows[:0:0]
	present := map[store.Key]bool{}
	t.plant()
	matches := t.matches()
	for _, r := range t.all {
		if len(t.marks) > 0 {
			present[t.Key(r)] = true
		}
		if matches(r) {
			t.rows = append(t.rows, r)
		}
	}
	for key := range t.marks {
		if !present[key] {
			delete(t.marks, key)
		}
	}
	slices.SortFunc(t.rows, t.compare)
	if len(t.rows) > 0 && t.at != (store.Key{}) {
		if i := slices.IndexFunc(t.rows, func(r R) bool { return t.Key(r) == t.at }); i >= 0 {
			t.cursor = i
			return
		}
	}
	t.moveTo(t.cursor)
}

// plant takes note of the rows that others may stay below.
func (t *Table[R]) plant() {
	if t.Parent == nil {
		return
	}
	t.roots = map[store.Key]R{}
	for _, r := range t.all {
		if _, below := t.Parent(r); !below {
			t.roots[t.Key(r)] = r
		}
	}
}

// root returns the row that a row stays below, or the row itself.
func (t *Table[R]) root(r R) (root R, below bool) {
	if t.Parent != nil {
		if key, ok := t.Parent(r); ok {
			if root, ok = t.roots[key]; ok {
				return root, true
			}
		}
	}
	return r, false
}

// matches returns whether the filter leaves a row: it leaves the rows that match it, with those above and below them
// that it does not exclude.
func (t *Table[R]) matches() func(R) bool {
	if t.filter.Empty() {
		return func(R) bool { return true }
	}
	now := t.Now()
	match := func(r R) bool { return t.filter.Match(t.text(r, now), t.labels(r)) }
	if t.Parent == nil {
		return match
	}
	found := map[store.Key]bool{}
	for _, r := range t.all {
		if match(r) {
			found[t.Key(r)] = true
		}
	}
	whole := maps.Clone(found)
	add := func(r R) {
		if !t.filter.Excludes(t.text(r, now), t.labels(r)) {
			whole[t.Key(r)] = true
		}
	}
	for _, r := range t.all {
		root, below := t.root(r)
		switch {
		case !below:
		case found[t.Key(root)]:
			add(r)
		case found[t.Key(r)]:
			add(root)
		}
	}
	return func(r R) bool { return whole[t.Key(r)] }
}

func (t *Table[R]) labels(r R) map[string]string {
	if t.Labels == nil {
		return nil
	}
	return t.Labels(r)
}

// text returns what filters see of a row, a line for each column.
func (t *Table[R]) text(r R, now time.Time) string {
	var cells []string
	for _, c := range t.Columns {
		switch {
		case !c.Volatile:
			cells = append(cells, strings.ReplaceAll(c.Cell(r, now).Text, "\n", " "))
		case c.Find != nil:
			cells = append(cells, c.Find(r))
		}
	}
	return strings.Join(cells, "\n")
}

// Unsearched returns the titles of the columns that filters do not search, or not whole.
func (t *Table[R]) Unsearched() []string {
	var titles []string
	for _, c := range t.Columns {
		if c.Volatile {
			titles = append(titles, c.Title)
		}
	}
	return titles
}

// compare orders rows, those of a tree by what they stay below first.
func (t *Table[R]) compare(a, b R) int {
	above, below := t.root(a)
	other, under := t.root(b)
	switch {
	case !below && !under:
	case t.Key(above) != t.Key(other):
		return t.ordered(above, other)
	case !below:
		return -1
	case !under:
		return 1
	}
	return t.ordered(a, b)
}

// ordered compares by the column that the rows are sorted by.
func (t *Table[R]) ordered(a, b R) int {
	var order int
	if c := t.Columns[t.sort]; c.Compare != nil {
		order = c.Compare(a, b)
	} else {
		now := t.Now()
		order = strings.Compare(c.Cell(a, now).Text, c.Cell(b, now).Text)
	}
	if t.reversed {
		order = -order
	}
	ka, kb := t.Key(a), t.Key(b)
	return cmp.Or(order, strings.Compare(ka.Namespace, kb.Namespace), strings.Compare(ka.Name, kb.Name))
}

const (
	gap       = 2
	markWidth = 2
)
