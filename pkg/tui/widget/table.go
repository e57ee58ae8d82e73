// Package widget has the parts that pages are drawn with: the table, sparklines, bars and boxes. They know rows and
// sizes, nothing of machines.
package widget

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/store"
	"github.com/virtkit/virtkit/pkg/tui/filter"
	"github.com/virtkit/virtkit/pkg/tui/theme"
)

// Cell is a piece of a row as it is shown.
type Cell struct {
	Text string
	Role theme.Role
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
	// Flex columns take what room is left, and need little: one of a table's columns at most.
	Flex bool
	Cell func(r R, now time.Time) Cell
	// Compare orders by this column; nil means its text does.
	Compare func(a, b R) int
	// Volatile columns are not searched by filters.
	Volatile bool
}

// Table shows the rows that a filter leaves, sorted by a column. It draws only what is visible, and its cursor stays on
// its row wherever that moves.
type Table[R any] struct {
	Columns []Column[R]
	// Key names a row; Labels are what label selectors see.
	Key    func(R) store.Key
	Labels func(R) map[string]string
	Now    func() time.Time
	Theme  *theme.Theme

	all, rows []R
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
	widthsFor int   // the width of the screen that widths were made for
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

// Filter is what chooses the rows.
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

// Sorted says by which column, and whether the other way round.
func (t *Table[R]) Sorted() (column int, reversed bool) { return t.sort, t.reversed }

// Len is how many rows are shown, of how many.
func (t *Table[R]) Len() (shown, all int) { return len(t.rows), len(t.all) }

// Current is the row under the cursor.
func (t *Table[R]) Current() (row R, ok bool) {
	if len(t.rows) == 0 {
		return row, false
	}
	return t.rows[t.cursor], true
}

// Marked are the marked rows that are shown; without any, the row under the cursor.
func (t *Table[R]) Marked() []R {
	var out []R
	if len(t.marks) > 0 {
		for _, r := range t.rows {
			if t.marks[t.Key(r)] {
				out = append(out, r)
			}
		}
	}
	if current, ok := t.Current(); ok && len(out) == 0 {
		out = append(out, current)
	}
	return out
}

// Marks is the number of rows that are marked.
func (t *Table[R]) Marks() int { return len(t.marks) }

// Fields are a row's cells, whole: the columns' titles and what each has.
func (t *Table[R]) Fields(r R) (titles, texts []string) {
	now := t.Now()
	for _, c := range t.Columns {
		titles = append(titles, c.Title)
		texts = append(texts, strings.TrimSpace(Harmless(ansi.Strip(c.Cell(r, now).Text))))
	}
	return titles, texts
}

// Mark marks the row under the cursor, or takes its mark away, and goes on to the next.
func (t *Table[R]) Mark() {
	current, ok := t.Current()
	if !ok {
		return
	}
	if t.marks == nil {
		t.marks = map[store.Key]bool{}
	}
	if key := t.Key(current); t.marks[key] {
		delete(t.marks, key)
	} else {
		t.marks[key] = true
	}
	t.Move(1)
}

// MarkAll marks all rows that are shown; when they all are, it takes the marks away.
func (t *Table[R]) MarkAll() {
	marks := map[store.Key]bool{}
	for _, r := range t.rows {
		marks[t.Key(r)] = true
	}
	for key := range marks {
		if !t.marks[key] {
			t.marks = marks
			return
		}
	}
	t.marks = nil
}

// Unmark takes all marks away.
func (t *Table[R]) Unmark() { t.marks = nil }

// Move moves the cursor by rows.
func (t *Table[R]) Move(by int) { t.moveTo(t.cursor + by) }

// Page moves the cursor by pages.
func (t *Table[R]) Page(by int) { t.moveTo(t.cursor + by*max(1, t.height-1)) }

// Top and Bottom move the cursor to the ends.
func (t *Table[R]) Top() { t.moveTo(0) }

// Bottom moves the cursor to the last row.
func (t *Table[R]) Bottom() { t.moveTo(len(t.rows) - 1) }

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
		for _, c := range t.visible() {
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

// arrange filters and sorts, and puts the cursor back on its row.
func (t *Table[R]) arrange() {
	now := t.Now()
	t.rows = t.rows[:0:0]
	present := map[store.Key]bool{}
	for _, r := range t.all {
		if len(t.marks) > 0 {
			present[t.Key(r)] = true
		}
		if t.filter.Empty() || t.filter.Match(t.text(r, now), t.labels(r)) {
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

func (t *Table[R]) labels(r R) map[string]string {
	if t.Labels == nil {
		return nil
	}
	return t.Labels(r)
}

// text is what filters see of a row.
func (t *Table[R]) text(r R, now time.Time) string {
	var b strings.Builder
	for _, c := range t.Columns {
		if !c.Volatile {
			b.WriteString(c.Cell(r, now).Text)
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func (t *Table[R]) compare(a, b R) int {
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

// View draws the header and as many rows as fit, each line as wide as asked.
func (t *Table[R]) View(width, height int) string {
	t.height = max(1, height-1)
	t.offset = max(0, min(t.offset, len(t.rows)-t.height))
	if t.cursor < t.offset {
		t.offset = t.cursor
	} else if t.cursor >= t.offset+t.height {
		t.offset = t.cursor - t.height + 1
	}
	now := t.Now()
	shown := t.rows[t.offset:min(len(t.rows), t.offset+t.height)]
	cells := make([][]Cell, len(shown))
	for i, r := range shown {
		cells[i] = make([]Cell, len(t.Columns))
		for c := range t.Columns {
			cell := t.Columns[c].Cell(r, now)
			if !cell.Styled {
				cell.Text = Harmless(cell.Text)
			}
			cells[i][c] = cell
		}
	}
	t.fit(width, cells)
	t.shrink()
	t.stretch()
	lines := []string{t.header(width)}
	for i := range shown {
		lines = append(lines, t.line(width, cells[i], t.offset+i == t.cursor, t.marks[t.Key(shown[i])]))
	}
	return strings.Join(lines, "\n")
}

// fit decides the widths. They only grow while the screen is the same, so that columns do not jump about.
func (t *Table[R]) fit(width int, cells [][]Cell) {
	if t.grown == nil || t.widthsFor != width {
		t.grown, t.widthsFor = make([]int, len(t.Columns)), width
		for c, column := range t.Columns {
			t.grown[c] = ansi.StringWidth(column.Title) + 1 // the order's arrow
		}
	}
	for _, row := range cells {
		for c, cell := range row {
			w := ansi.StringWidth(cell.Text)
			if t.Columns[c].Flex {
				continue
			}
			if limit := t.Columns[c].Max; limit > 0 {
				w = min(w, limit)
			}
			t.grown[c] = max(t.grown[c], w)
		}
	}
	t.widths = slices.Clone(t.grown)
}

// shrink makes long columns shorter, the widest first, before others are left out for them: down to shrunk cells.
func (t *Table[R]) shrink() {
	total := markWidth - gap
	for c := range t.Columns {
		total += t.widths[c] + gap
		if t.Columns[c].Flex {
			total += flexMin - t.widths[c]
		}
	}
	for total > t.widthsFor {
		widest := -1
		for c := range t.Columns {
			if !t.Columns[c].Flex && t.widths[c] > shrunk && (widest < 0 || t.widths[c] > t.widths[widest]) {
				widest = c
			}
		}
		if widest < 0 {
			return
		}
		t.widths[widest]--
		total--
	}
}

// shrunk is the least that a long column is made.
const shrunk = 20

// flexMin is the least that a flexible column is worth drawing with.
const flexMin = 20

// stretch gives the flexible column the room that the others leave.
func (t *Table[R]) stretch() {
	flex := slices.IndexFunc(t.Columns, func(c Column[R]) bool { return c.Flex })
	if flex < 0 {
		return
	}
	t.widths[flex] = flexMin
	room := t.widthsFor - markWidth
	for _, c := range t.visible() {
		if c != flex {
			room -= t.widths[c] + gap
		}
	}
	t.widths[flex] = max(flexMin, room)
}

// visible are the columns that there is room for.
func (t *Table[R]) visible() []int {
	var out []int
	total := markWidth
	for c := range t.Columns {
		out = append(out, c)
		total += t.widths[c] + gap
	}
	for total-gap > t.widthsFor && len(out) > 1 {
		worst := 0
		for i, c := range out {
			if t.Columns[c].Priority >= t.Columns[out[worst]].Priority {
				worst = i
			}
		}
		if t.Columns[out[worst]].Priority == 0 {
			break
		}
		total -= t.widths[out[worst]] + gap
		out = slices.Delete(out, worst, worst+1)
	}
	return out
}

func (t *Table[R]) header(width int) string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", markWidth))
	for _, c := range t.visible() {
		title := t.Columns[c].Title
		if c == t.sort {
			arrow := t.Theme.Up
			if t.reversed {
				arrow = t.Theme.Down
			}
			title += arrow
		}
		b.WriteString(t.Theme.Paint(theme.Header, pad(title, t.widths[c], t.Columns[c].Right, t.Theme.Ellipsis)))
		b.WriteString(strings.Repeat(" ", gap))
	}
	return ansi.Truncate(b.String(), width, "")
}

func (t *Table[R]) line(width int, cells []Cell, current, marked bool) string {
	var b strings.Builder
	mark := " "
	if marked {
		mark = t.Theme.Mark
	}
	role := theme.Mark
	if current {
		role = theme.Text // the cursor's colours are for the whole line
	}
	b.WriteString(t.Theme.Paint(role, mark) + " ")
	for _, c := range t.visible() {
		text := pad(cells[c].Text, t.widths[c], t.Columns[c].Right, t.Theme.Ellipsis)
		switch {
		case current:
			text = ansi.Strip(text)
		case cells[c].Styled:
		case marked && cells[c].Role == theme.Text:
			text = t.Theme.Paint(theme.Mark, text)
		default:
			text = t.Theme.Paint(cells[c].Role, text)
		}
		b.WriteString(text)
		b.WriteString(strings.Repeat(" ", gap))
	}
	line := ansi.Truncate(b.String(), width, "")
	if current {
		line = t.Theme.Paint(theme.Cursor, pad(line, width, false, ""))
	}
	return line
}
