package widget

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/printable"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// Harmless takes out of text what a terminal would obey, and makes one line of it: guests and objects may say anything.
// Rows have no room for the escapes that virtctl's other commands show instead.
func Harmless(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, printable.Hostile) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case printable.Hostile(r):
			return -1
		}
		return r
	}, ansi.Strip(text))
}

// pad makes text as wide as asked, cut with an ellipsis where it is longer.
func pad(text string, width int, right bool, ellipsis string) string {
	w := ansi.StringWidth(text)
	switch {
	case w > width:
		return ansi.Truncate(text, width, ellipsis)
	case right:
		return strings.Repeat(" ", width-w) + text
	}
	return text + strings.Repeat(" ", width-w)
}

// Pad makes text as wide as asked, cut with an ellipsis where it is longer.
func Pad(t *theme.Theme, text string, width int) string {
	return pad(text, max(0, width), false, t.Ellipsis)
}

// hyphen stands for "-" while text is wrapped, so that no flag or name is broken at one.
const hyphen = "\uE000"

// Wrap breaks text into lines so wide, at blanks. Those after the first begin at column hang; with 0, two cells right
// of where the first does.
func Wrap(text string, width, hang int) []string {
	if ansi.StringWidth(text) <= width {
		return []string{text}
	}
	if hang == 0 {
		hang = len(text) - len(strings.TrimLeft(text, " ")) + 2
	}
	hang = max(0, min(hang, width-16))
	// What is before that column stays as it is.
	head, body := ansi.Truncate(text, hang, ""), ansi.TruncateLeft(text, hang, "")
	body = ansi.Wrap(strings.ReplaceAll(body, "-", hyphen), width-hang, "")
	lines := strings.Split(strings.ReplaceAll(body, hyphen, "-"), "\n")
	for i := range lines {
		if i == 0 {
			lines[i] = head + lines[i]
		} else {
			lines[i] = strings.Repeat(" ", hang) + lines[i]
		}
	}
	return lines
}

// Fill makes text exactly so many lines of exactly so many cells.
func Fill(text string, width, height int) string {
	lines := strings.Split(text, "\n")
	out := make([]string, height)
	for i := range out {
		line := ""
		if i < len(lines) {
			line = lines[i]
		}
		out[i] = pad(line, width, false, "")
	}
	return strings.Join(out, "\n")
}

// Sparkline draws a Graph of one line.
func Sparkline(t *theme.Theme, values []float64, full float64, width int) string {
	return Graph(t, values, full, width, 1)[0]
}

// Bar draws a share between 0 and 1.
func Bar(t *theme.Theme, share float64, width int) string {
	full := max(0, min(width, int(share*float64(width)+0.5)))
	return strings.Repeat(t.Full, full) + strings.Repeat(t.Empty, width-full)
}

// Bytes formats an amount of bytes in three digits or so, with the binary unit's letter.
func Bytes(v float64) string {
	units := []string{"", "K", "M", "G", "T", "P"}
	i := 0
	for v >= 1000 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if v < 10 && i > 0 {
		return fmt.Sprintf("%.1f%s", v, units[i])
	}
	return fmt.Sprintf("%.0f%s", v, units[i])
}

// Line is a line of text and what it is.
type Line struct {
	Text string
	Role theme.Role
	// Hang is the column that the rest of a long line begins at; see Wrap.
	Hang int
}

// Lines makes lines of text that has no role.
func Lines(text string) []Line {
	var out []Line
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		out = append(out, Line{Text: line})
	}
	return out
}
