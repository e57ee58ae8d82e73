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
