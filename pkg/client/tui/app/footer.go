package app

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// footer shows the keys that fit: the page's, those that do something now first and the others dim, and at the right of
// the last line those of every page. Where the page has more keys than one line has room for, there are two lines; how
// many does not depend on the row under the cursor.
func (a *App) footer(t *theme.Theme) []string {
	everywhere := a.keys.Hints(a)
	if a.grabbed() {
		everywhere = nil
	} else if _, typing := a.top().(page.Typing); typing { // letters are typed there
		everywhere = slices.DeleteFunc(everywhere, func(h keymap.Hint) bool { return len(h.Code) == 1 })
	}
	right, _ := hints(t, everywhere, a.width*3/5)
	room := a.width - ansi.StringWidth(right) - 1
	own := ordered(a.top().Hints())
	var lines []string
	if left, rest := hints(t, own, room); len(rest) == 0 || a.height < tallFrom {
		return append(lines, widget.Pad(t, " "+left, room+1)+right)
	}
	first, rest := hints(t, own, a.width-1)
	second, _ := hints(t, rest, room)
	return append(lines, widget.Pad(t, " "+first, a.width), widget.Pad(t, " "+second, room+1)+right)
}

// ordered returns the hints that the footer shows, those of keys that do something now first.
func ordered(all []keymap.Hint) []keymap.Hint {
	var now, dim []keymap.Hint
	for _, h := range all {
		switch {
		case h.Quiet || h.Name == "":
		case h.Why == "":
			now = append(now, h)
		default:
			dim = append(dim, h)
		}
	}
	return append(now, dim...)
}

// hints draws the keys that fit into so many cells, each with two cells after it, and returns those that are left.
func hints(t *theme.Theme, all []keymap.Hint, width int) (string, []keymap.Hint) {
	var b strings.Builder
	for i, h := range all {
		if h.Quiet || h.Name == "" {
			continue
		}
		key := t.Keys(h.Key)
		text := key + " " + h.Name
		w := ansi.StringWidth(text) + 2
		if w > width {
			return b.String(), all[i:]
		}
		if width -= w; h.Why != "" {
			b.WriteString(t.Paint(theme.Dim, text))
		} else {
			b.WriteString(t.Paint(theme.Key, key) + " " + h.Name)
		}
		b.WriteString("  ")
	}
	return b.String(), nil
}
