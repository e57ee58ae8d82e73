package page

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// window is the part of a page of lines that is on the screen, and the search in those lines. Pages of lines embed it.
type window struct {
	offset, height int
	lines          []string // all of the page, as it was drawn last
	search         string   // in lower case; "" searches nothing
	hit            int      // the line of the match that was gone to
	from           int      // where the search began
}

// view returns the part of lines that is on a screen of width and height, with the matches of the search marked, and a
// bar at the right where there are more lines.
func (w *window) view(t *theme.Theme, lines []string, width, height int) string {
	w.lines, w.height = lines, max(1, height)
	w.by(0)
	shown := append([]string{}, lines[w.offset:min(len(lines), w.offset+w.height)]...)
	if w.search != "" {
		for i := range shown {
			shown[i] = highlight(t, shown[i], w.search, w.offset+i == w.hit)
		}
	}
	return strings.Join(widget.Scrollbar(t, shown, width, w.offset, w.height, len(lines)), "\n")
}

// by scrolls.
func (w *window) by(lines int) { w.offset = max(0, min(w.offset+lines, len(w.lines)-w.height)) }

// Searched returns the text that is searched for; "" is none.
func (w *window) Searched() string { return w.search }

// Search searches for text, whatever its case, and goes to the first match after the line at which the search began.
// It reports where that is, "2 of 7".
func (w *window) Search(text string) string {
	if w.search == "" {
		w.from = w.offset
	}
	if w.search = strings.ToLower(text); w.search == "" {
		w.offset = w.from
		w.by(0)
		return ""
	}
	w.hit = w.from - 1
	return w.NextMatch(1)
}

// EndSearch forgets the search and stays where it is.
func (w *window) EndSearch() { w.search = "" }

// NextMatch goes to the next line with a match, or with -1 to the one before, round the ends.
func (w *window) NextMatch(by int) string {
	var hits []int
	for i, line := range w.lines {
		if strings.Contains(strings.ToLower(ansi.Strip(line)), w.search) {
			hits = append(hits, i)
		}
	}
	if len(hits) == 0 {
		return "Nothing here matches"
	}
	at := 0
	if by > 0 {
		for at < len(hits) && hits[at] <= w.hit {
			at++
		}
		at %= len(hits)
	} else {
		at = len(hits) - 1
		for at >= 0 && hits[at] >= w.hit {
			at--
		}
		at = (at + len(hits)) % len(hits)
	}
	w.hit = hits[at]
	if w.hit < w.offset || w.hit >= w.offset+w.height {
		w.offset = w.hit - w.height/3
		w.by(0)
	}
	return fmt.Sprintf("%d of %d", at+1, len(hits))
}

// highlight marks where a line has text, which is in lower case.
func highlight(t *theme.Theme, line, text string, current bool) string {
	plain := ansi.Strip(line)
	lower := strings.ToLower(plain)
	if len(lower) != len(plain) || !strings.Contains(lower, text) { // a few letters are longer in lower case
		return line
	}
	role := theme.Found
	if current {
		role = theme.FoundHere
	}
	var b strings.Builder
	cell, at := 0, 0
	for {
		i := strings.Index(lower[at:], text)
		if i < 0 {
			break
		}
		start := ansi.StringWidth(plain[:at+i])
		end := ansi.StringWidth(plain[:at+i+len(text)])
		b.WriteString(ansi.Cut(line, cell, start))
		b.WriteString(t.Paint(role, plain[at+i:at+i+len(text)]))
		cell, at = end, at+i+len(text)
	}
	b.WriteString(ansi.TruncateLeft(line, cell, ""))
	return b.String()
}

// scrolling returns the keys that scroll.
func scrolling[M any](of func(M) *window) keymap.Map[M] {
	bind := func(help string, by func(*window) int, keys ...string) keymap.Binding[M] {
		return keymap.Binding[M]{
			Keys: keys, Help: help, Quiet: true,
			Do: func(m M) tea.Cmd { w := of(m); w.by(by(w)); return nil },
		}
	}
	return keymap.Map[M]{
		bind("one line down", func(*window) int { return 1 }, "down", "j"),
		bind("one line up", func(*window) int { return -1 }, "up", "k"),
		bind("one page down", func(w *window) int { return w.height }, "pgdown", "space", "ctrl+f"),
		bind("one page up", func(w *window) int { return -w.height }, "pgup", "ctrl+b"),
		bind("to the beginning", func(w *window) int { return -len(w.lines) }, "home", "g"),
		bind("to the end", func(w *window) int { return len(w.lines) }, "end", "G"),
	}
}
