package app

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/printable"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// View draws the screen.
func (a *App) View() tea.View {
	v := tea.NewView(printable.Frame(a.screen()))
	v.AltScreen = true
	v.MouseMode = tea.MouseModeCellMotion
	v.ReportFocus = true
	v.WindowTitle = a.World.Program + " dashboard"
	return v
}

// screen returns what is drawn, height lines of width cells.
func (a *App) screen() string { return a.theme().Whole(a.draw()) }

func (a *App) draw() string {
	t := a.theme()
	if a.width < 20 || a.height < 5 {
		return widget.Fill("The window is too small", a.width, a.height)
	}
	header, footer := a.header(), a.footer(t)
	status := a.status(t, len(footer))
	body := a.height - len(header) - len(status) - len(footer)
	content := a.top().View(a.width, body)
	return strings.Join(header, "\n") + "\n" + widget.Fill(content, a.width, body) + "\n" +
		strings.Join(status, "\n") + "\n" + strings.Join(footer, "\n")
}

// status returns what is asked, typed, or to be said: one line, or as many as it takes to say it whole, up to half of
// the screen with the footer's lines.
func (a *App) status(t *theme.Theme, footer int) []string {
	switch {
	case a.ask != nil:
		text, role := a.ask.view()
		return a.said(t, role, text, "", footer)
	case a.prompt != nil:
		return a.prompt.view(a, t)
	case a.notice != "" && a.notice == a.goingOn():
		return []string{a.running(t)}
	case a.notice != "": // it is newer than what stands in trouble
		return a.said(t, theme.Accent, a.notice, a.unread("  %d unread: esc", 0), footer)
	case len(a.trouble) > 0:
		key := a.unread("  esc: read, %d more", 1)
		if key == "" && !a.grabbed() {
			key = "  esc: read"
		}
		return a.said(t, theme.Bad, a.trouble[len(a.trouble)-1], key, footer)
	}
	if state := a.top().State(); state.Synced && state.Stale() && state.Err != nil {
		return a.said(t, theme.Bad, a.World.Say(state.Err), "", footer)
	}
	return []string{a.running(t)}
}

// unread returns a key with the number of errors that were not yet read, beyond those that are shown; it is empty where
// there are none, or where esc is the guest's.
func (a *App) unread(format string, shown int) string {
	if n := len(a.trouble) - shown; n > 0 && !a.grabbed() {
		return fmt.Sprintf(format, n)
	}
	return ""
}

// said returns a text in as many lines as it takes, with a key at the end of the last.
func (a *App) said(t *theme.Theme, role theme.Role, text, key string, footer int) []string {
	var lines []string
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		lines = append(lines, widget.Wrap(" "+widget.Harmless(part), a.width-1, 0)...)
	}
	if limit := max(1, a.height/2-1-footer); len(lines) > limit {
		lines = append(lines[:limit-1:limit-1], "   "+t.Ellipsis+" (L has all of it)")
	}
	last := len(lines) - 1
	if len(lines) == 1 || ansi.StringWidth(lines[last])+len(key) < a.width {
		for i := range lines[:last] {
			lines[i] = t.Paint(role, widget.Pad(t, lines[i], a.width))
		}
		if room := a.width - len(key) - 1; ansi.StringWidth(lines[last]) > room { // one line, and no room for the key
			return []string{
				t.Paint(role, widget.Pad(t, lines[last], a.width)),
				widget.Pad(t, strings.Repeat(" ", room)+t.Paint(theme.Key, key), a.width),
			}
		}
		lines[last] = t.Paint(role, widget.Pad(t, lines[last], a.width-len(key)-1)) + t.Paint(theme.Key, key) + " "
		return lines
	}
	for i := range lines {
		lines[i] = t.Paint(role, widget.Pad(t, lines[i], a.width))
	}
	return append(lines, widget.Pad(t, strings.Repeat(" ", a.width-len(key)-1)+t.Paint(theme.Key, key), a.width))
}

// goingOn returns how the command that was started last is called, once it has run for so long that its time is worth
// saying; empty when it has ended.
func (a *App) goingOn() string {
	if len(a.log) == 0 {
		return ""
	}
	if e := a.log[len(a.log)-1]; !e.ended && a.World.Now().Sub(e.at) >= longFrom {
		return e.brief
	}
	return ""
}

// longFrom is how long a command runs before its time is shown.
const longFrom = 2 * time.Second

// running returns the line about the command that runs now, and for how long it has.
func (a *App) running(t *theme.Theme) string {
	for i := len(a.log) - 1; i >= 0; i-- {
		if e := a.log[i]; !e.ended {
			took := a.World.Now().Sub(e.at).Round(time.Second)
			text := fmt.Sprintf(" Waiting %s for: %s", took, widget.Harmless(cmp.Or(e.brief, e.line)))
			if e.progress != nil {
				if far := e.progress(); far != "" {
					text = fmt.Sprintf(" %s: %s", widget.Harmless(far), widget.Harmless(cmp.Or(e.brief, e.line)))
				}
			}
			return t.Paint(theme.Busy, widget.Pad(t, text, a.width))
		}
	}
	return strings.Repeat(" ", a.width)
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
			lines = append(lines,
				widget.Line{
					Text: "  " + widget.Pad(a.theme(), a.theme().Keys(h.Key), 14) + text, Role: role, Hang: 16,
				})
		}
	}
	section(a.top().Title(), a.top().Hints())
	lines = append(lines, widget.Line{})
	section("Every page", a.keys.Hints(a))
	lines = append(lines, widget.Line{}, widget.Line{Text: "  The mouse", Role: theme.Title})
	for _, what := range [][2]string{
		{"click", "move to a row, sort by the column of a header, or open a page of the bar"},
		{"double click", "open the row"},
		{"wheel", "move the cursor"},
		{"shift", "held, most terminals select text as without a dashboard"},
	} {
		lines = append(lines, widget.Line{Text: "  " + widget.Pad(a.theme(), what[0], 14) + what[1], Hang: 16})
	}
	return page.Send(page.Open{
		Page: page.NewText(a.World, "keys", func(context.Context) ([]widget.Line, error) { return lines, nil }),
	})
}

// logPage shows what was done, the newest first.
func (a *App) logPage() page.Page { return page.NewLive(a.World, "what was done", a.logLines) }

func (a *App) logLines() []widget.Line {
	var lines []widget.Line
	for i := len(a.log) - 1; i >= 0; i-- {
		e := a.log[i]
		outcome, role := "done", theme.Text
		switch {
		case e.err != nil:
			outcome, role = a.World.Say(e.err), theme.Bad
		case !e.ended:
			outcome, role = "going on", theme.Busy
		}
		lines = append(lines, widget.Line{
			Text: "  " + e.at.Format(time.TimeOnly) + "  " + e.line,
			Role: theme.Accent,
		})
		for part := range strings.SplitSeq(outcome, "\n") {
			lines = append(lines, widget.Line{Text: "            " + part, Role: role, Hang: 12})
		}
	}
	if len(lines) == 0 {
		lines = append(lines, widget.Line{Text: "  Nothing was done yet. Each action is written here as the " +
			"command that does the same.", Role: theme.Dim})
	}
	return lines
}
