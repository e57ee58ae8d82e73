package widget

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
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
			if cell.Glyph != "" {
				cell.Text = cell.Glyph + " " + cell.Text
			}
			cells[i][c] = cell
		}
	}
	room := width
	if len(t.rows) > t.height {
		room-- // for the bar
	}
	t.layout(room, cells)
	lines := make([]string, 0, len(shown))
	for i := range shown {
		lines = append(lines, t.line(room, cells[i], t.offset+i == t.cursor, t.marks[t.Key(shown[i])]))
	}
	lines = Scrollbar(t.Theme, lines, width, t.offset, t.height, len(t.rows))
	return strings.Join(append([]string{t.header(room)}, lines...), "\n")
}

// layout decides which columns are drawn, and how wide. What has no room gives way in this order: long columns are cut
// to shrunk cells, the First one to distinct cells, columns of little importance are left out, the First column is cut
// further, and the others are left out. What room that makes goes to the columns that were cut.
func (t *Table[R]) layout(width int, cells [][]Cell) {
	t.grow(width, cells)
	t.widths = slices.Clone(t.grown)
	t.shown = t.shown[:0]
	for c := range t.Columns {
		t.shown = append(t.shown, c)
		if t.Columns[c].Flex {
			t.widths[c] = flexMin
		}
	}
	t.shrink(width, false, shrunk)
	t.shrink(width, true, distinct)
	t.drop(width, important)
	t.shrink(width, true, shrunk)
	t.drop(width, 0)
	t.regain(width)
	t.stretch(width)
}

// grow takes note of how wide the cells would like to be. That only grows while the screen is the same, so that columns
// do not jump about.
func (t *Table[R]) grow(width int, cells [][]Cell) {
	if t.grown == nil || t.widthsFor != width {
		t.grown, t.widthsFor = make([]int, len(t.Columns)), width
		for c, column := range t.Columns {
			t.grown[c] = ansi.StringWidth(column.Title) + 1 // the order's arrow
		}
	}
	for _, row := range cells {
		for c, cell := range row {
			if t.Columns[c].Flex {
				continue
			}
			w := ansi.StringWidth(cell.Text)
			if limit := t.Columns[c].Max; limit > 0 {
				w = min(w, limit)
			}
			t.grown[c] = max(t.grown[c], w)
		}
	}
}

// total returns the width of the columns that are drawn.
func (t *Table[R]) total() int {
	total := markWidth - gap
	for _, c := range t.shown {
		total += t.widths[c] + gap
	}
	return total
}

// shrink makes long columns shorter, the widest first, down to some cells: all but the First one, or that alone.
func (t *Table[R]) shrink(width int, first bool, least int) {
	for total := t.total(); total > width; total-- {
		widest := -1
		for _, c := range t.shown {
			if column := &t.Columns[c]; column.Flex || column.First != first || t.widths[c] <= least {
				continue
			}
			if widest < 0 || t.widths[c] > t.widths[widest] {
				widest = c
			}
		}
		if widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

// drop leaves columns out whose priority is above one, the highest first.
func (t *Table[R]) drop(width, above int) {
	for t.total() > width && len(t.shown) > 1 {
		worst := 0
		for i, c := range t.shown {
			if t.Columns[c].Priority >= t.Columns[t.shown[worst]].Priority {
				worst = i
			}
		}
		if t.Columns[t.shown[worst]].Priority <= above {
			return
		}
		t.shown = slices.Delete(t.shown, worst, worst+1)
	}
}

// regain gives room that is left, since columns were left out, back to those that were cut: to the First one before
// the others.
func (t *Table[R]) regain(width int) {
	room := width - t.total()
	for _, first := range []bool{true, false} {
		for _, c := range t.shown {
			if column := &t.Columns[c]; column.First == first && !column.Flex {
				more := max(0, min(room, t.grown[c]-t.widths[c]))
				t.widths[c] += more
				room -= more
			}
		}
	}
}

const (
	// shrunk is the least that a long column is made.
	shrunk = 20
	// distinct is how many cells of the First column distinguish most rows.
	distinct = 40
	// flexMin is the least that a flexible column is worth drawing with.
	flexMin = 20
	// important is the priority up to which a column stays while the First one can still be cut.
	important = 2
)

// stretch gives the flexible column the room that the others leave.
func (t *Table[R]) stretch(width int) {
	for _, c := range t.shown {
		if t.Columns[c].Flex {
			t.widths[c] = max(flexMin, t.widths[c]+width-t.total())
		}
	}
}

func (t *Table[R]) header(width int) string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", markWidth))
	for _, c := range t.shown {
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
	for _, c := range t.shown {
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
