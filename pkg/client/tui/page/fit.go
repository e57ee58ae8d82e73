package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// fitting is which part of a form is on a screen that is too short for all of it.
type fitting struct {
	first  int // the first field
	offset int // the first line of what is said below
	page   int // how many lines of that are shown
}

// restLeast is how many lines of a short screen are for what is said below the fields, with the line before them.
const restLeast = 4

// fieldsLeast is how many lines of a short screen are for the fields, before anything is said below them.
const fieldsLeast = 4

// fit returns the lines of a form, at most height: its fields, the verdict on them, and what else is said. On a screen
// that is too short the field that keys go to and the beginning of the verdict stay in sight, and the rest is scrolled.
func (f *fitting) fit(t *theme.Theme, fields []string, at int, verdict, rest []string, width, height int) []string {
	below := slices.Clone(verdict)
	if len(rest) > 0 {
		below = append(append(below, ""), rest...)
	}
	if len(fields)+1+len(below) <= height {
		f.first, f.offset, f.page = 0, 0, len(rest)
		return append(append(slices.Clone(fields), ""), below...)
	}
	if height < 2 {
		return []string{fields[at]}[:max(0, height)]
	}
	between := min(1, height-2) // the line before the verdict
	verdict = verdict[:min(len(verdict), max(1, height-1-between))]
	room := height - between - len(verdict)
	if wanted := min(len(rest)+1, restLeast); len(rest) > 0 {
		room = max(min(room, fieldsLeast), room-wanted)
	}
	lines := f.scrolled(t, fields, at, width, min(room, len(fields)))
	if between > 0 {
		lines = append(lines, more(t, t.Down, len(fields)-f.last(fields, room), width))
	}
	lines = append(lines, verdict...)
	if left := height - len(lines); len(rest) > 0 && left > 1 {
		lines = append(append(lines, ""), f.part(t, rest, width, left-1)...)
	}
	return lines
}

// scrolled returns the fields that have room, among them the one that keys go to. Where some are left out, the first
// line says how many are above.
func (f *fitting) scrolled(t *theme.Theme, fields []string, at, width, room int) []string {
	shown := fieldsIn(len(fields), room)
	f.first = max(0, min(f.first, at, len(fields)-shown))
	if at >= f.first+shown {
		f.first = at - shown + 1
	}
	var lines []string
	if shown < room {
		lines = append(lines, more(t, t.Up, f.first, width))
	}
	return append(lines, fields[f.first:f.first+shown]...)
}

// last returns the field after the last one that is shown.
func (f *fitting) last(fields []string, room int) int {
	return f.first + fieldsIn(len(fields), min(room, len(fields)))
}

// fieldsIn returns how many of all fields are shown in so many lines.
func fieldsIn(all, room int) int {
	const worth = 3 // the least with room for a line that says how many are above
	if all > room && room >= worth {
		return room - 1
	}
	return min(all, room)
}

// part returns the lines from the offset on, and in the last how many more there are.
func (f *fitting) part(t *theme.Theme, lines []string, width, height int) []string {
	if len(lines) <= height {
		f.offset, f.page = 0, height
		return lines
	}
	f.page = max(1, height-1)
	f.offset = max(0, min(f.offset, len(lines)-f.page))
	end := min(len(lines), f.offset+f.page)
	out := slices.Clone(lines[f.offset:end])
	if len(out) < height {
		var parts []string
		if f.offset > 0 {
			parts = append(parts, fmt.Sprintf("%s %d more (pgup)", t.Up, f.offset))
		}
		if below := len(lines) - end; below > 0 {
			parts = append(parts, fmt.Sprintf("%s %d more (pgdn)", t.Down, below))
		}
		out = append(out, t.Paint(theme.Dim, widget.Pad(t, "  "+strings.Join(parts, ", "), width)))
	}
	return out
}

// more returns the line that says that there are more fields in the direction of an arrow.
func more(t *theme.Theme, arrow string, count, width int) string {
	text := ""
	if count > 0 {
		text = fmt.Sprintf("  %s %d more", arrow, count)
	}
	return t.Paint(theme.Dim, widget.Pad(t, text, width))
}

// joined returns lines as a page draws them.
func joined(lines []string) string { return strings.Join(lines, "\n") }
