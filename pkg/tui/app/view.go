package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/tui/keymap"
	"github.com/virtkit/virtkit/pkg/tui/page"
	"github.com/virtkit/virtkit/pkg/tui/theme"
	"github.com/virtkit/virtkit/pkg/tui/widget"
)

const (
	headerHeight = 1
	footerHeight = 2
)

// View draws the screen.
func (a *App) View() tea.View {
	v := tea.NewView(a.screen())
	v.AltScreen = true
	v.MouseMode = tea.MouseModeCellMotion
	v.ReportFocus = true
	v.WindowTitle = a.World.Program + " dashboard"
	return v
}

// screen is what is drawn, height lines of width cells.
func (a *App) screen() string {
	t := a.theme()
	if a.width < 20 || a.height < 5 {
		return widget.Fill("The window is too small", a.width, a.height)
	}
	body := a.height - headerHeight - footerHeight
	content := a.top().View(a.width, body)
	return a.header() + "\n" + widget.Fill(content, a.width, body) + "\n" + a.status(t) + "\n" + a.footer(t)
}

// header says where we are and whether to believe it.
func (a *App) header() string {
	t := a.theme()
	namespace := a.World.Namespace
	if namespace == "" {
		namespace = "all namespaces"
	}
	var trail []string
	for _, p := range a.stack {
		trail = append(trail, widget.Harmless(p.Title()))
	}
	left := " " + t.Paint(theme.Title, strings.Join(trail, " > "))
	right := t.Paint(theme.Dim, widget.Harmless(a.World.Context)+" / "+namespace) + " "
	if badge := a.badge(); badge != "" {
		right = t.Paint(theme.Bad, badge) + "  " + right
	}
	if a.World.ReadOnly {
		right = t.Paint(theme.Warn, "read-only") + "  " + right
	}
	room := a.width - ansi.StringWidth(right)
	if room < 20 {
		right = ansi.Truncate(right, max(0, a.width-20), t.Ellipsis)
		room = a.width - ansi.StringWidth(right)
	}
	return widget.Pad(t, left, room) + right
}

// badge says that what is shown is old, and how old.
func (a *App) badge() string {
	state := a.top().State()
	if !state.Stale() || !state.Synced {
		return ""
	}
	return "STALE for " + a.World.Now().Sub(state.Since).Round(time.Second).String()
}

// status is the line for what is asked, typed, or to be said.
func (a *App) status(t *theme.Theme) string {
	switch {
	case a.ask != nil:
		return a.ask.view(t, a.width)
	case a.prompt != nil:
		line := a.prompt.input.View()
		if a.prompt.err != nil {
			line += "  " + t.Paint(theme.Bad, a.prompt.err.Error())
		}
		return widget.Pad(t, line, a.width)
	case len(a.trouble) > 0:
		more := ""
		if n := len(a.trouble) - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		return t.Paint(theme.Bad, widget.Pad(t, " "+widget.Harmless(a.trouble[0])+more, a.width-len(dismiss)-1)) + t.Paint(theme.Key, dismiss) + " "
	case a.notice != "":
		return t.Paint(theme.Accent, widget.Pad(t, " "+widget.Harmless(a.notice), a.width))
	}
	if state := a.top().State(); state.Stale() && state.Err != nil {
		return t.Paint(theme.Bad, widget.Pad(t, " "+widget.Harmless(state.Err.Error()), a.width))
	}
	return a.running(t)
}

const dismiss = "  esc: read"

// running says what is being done.
func (a *App) running(t *theme.Theme) string {
	for i := len(a.log) - 1; i >= 0; i-- {
		if e := a.log[i]; !e.ended {
			took := a.World.Now().Sub(e.at).Round(time.Second)
			return t.Paint(theme.Busy, widget.Pad(t, fmt.Sprintf(" %s (%s)", widget.Harmless(e.line), took), a.width))
		}
	}
	return strings.Repeat(" ", a.width)
}

// footer shows the keys that fit: those of every page at the right, and before them the page's. Those that do nothing now are
// dim.
func (a *App) footer(t *theme.Theme) string {
	everywhere := a.keys.Hints(a)
	if a.grabbed() {
		everywhere = nil
	} else if _, typing := a.top().(page.Typing); typing { // letters are typed there
		everywhere = slices.DeleteFunc(everywhere, func(h keymap.Hint) bool { return len(h.Code) == 1 })
	}
	right := hints(t, everywhere, a.width/2)
	left := hints(t, a.top().Hints(), a.width-ansi.StringWidth(right)-1)
	return widget.Pad(t, " "+left, a.width-ansi.StringWidth(right)) + right
}

// hints draws the keys that fit into so many cells, each with two cells after it.
func hints(t *theme.Theme, all []keymap.Hint, width int) string {
	var b strings.Builder
	for _, h := range all {
		if h.Quiet || h.Name == "" {
			continue
		}
		text := h.Key + " " + h.Name
		w := ansi.StringWidth(text) + 2
		if w > width {
			break
		}
		if width -= w; h.Why != "" {
			b.WriteString(t.Paint(theme.Dim, text))
		} else {
			b.WriteString(t.Paint(theme.Key, h.Key) + " " + h.Name)
		}
		b.WriteString("  ")
	}
	return b.String()
}

// showHelp opens a page of all keys of this one, with why one does nothing now.
func (a *App) showHelp() tea.Cmd {
	var lines []widget.Line
	section := func(title string, all []keymap.Hint) {
		lines = append(lines, widget.Line{Text: "  " + title, Role: theme.Title})
		for _, h := range all {
			text, role := h.Help, theme.Text
			if h.Why != "" {
				text, role = text+" (now: "+h.Why+")", theme.Dim
			}
			lines = append(lines, widget.Line{Text: "  " + widget.Pad(a.theme(), h.Key, 14) + text, Role: role})
		}
	}
	section(a.top().Title(), a.top().Hints())
	lines = append(lines, widget.Line{})
	section("Every page", a.keys.Hints(a))
	return page.Send(page.Open{Page: page.NewText(a.World, "keys", func(context.Context) ([]widget.Line, error) { return lines, nil })})
}

// logPage shows what was done, the newest last.
func (a *App) logPage() page.Page {
	return page.NewText(a.World, "what was done", func(context.Context) ([]widget.Line, error) {
		var lines []widget.Line
		for _, e := range a.log {
			outcome, role := "done", theme.Text
			switch {
			case e.err != nil:
				outcome, role = e.err.Error(), theme.Bad
			case !e.ended:
				outcome, role = "going on", theme.Busy
			}
			lines = append(lines, widget.Line{Text: "  " + e.at.Format(time.TimeOnly) + "  " + e.line, Role: theme.Accent}, widget.Line{Text: "            " + outcome, Role: role})
		}
		if len(lines) == 0 {
			lines = append(lines, widget.Line{Text: "  Nothing was done yet. Each action is written here as the command that does the same.", Role: theme.Dim})
		}
		return lines, nil
	})
}
