package app

import (
	"time"

	tea "charm.land/bubbletea/v2"
)

// quitting comes a moment after the dashboard was asked to end: a task of the key before is known by then.
type quitting struct{}

// quit ends the dashboard when the cluster has answered all that was asked of it: an action that was agreed to would
// be lost with the connection. Asked a second time it ends at once.
func (a *App) quit() tea.Cmd {
	if a.leaving {
		return tea.Quit
	}
	a.leaving = true
	return tea.Tick(20*time.Millisecond, func(time.Time) tea.Msg { return quitting{} })
}

// quitWhenAnswered ends the dashboard unless something has no answer yet.
func (a *App) quitWhenAnswered() tea.Cmd {
	unanswered := a.Unanswered()
	switch {
	case !a.leaving:
		return nil
	case len(unanswered) == 0:
		return tea.Quit
	}
	a.notice = "Leaving when the cluster has answered; q leaves at once: " + unanswered[0]
	return nil
}

// Unanswered returns the command lines of what was asked of the cluster and has had no answer.
func (a *App) Unanswered() (lines []string) {
	for _, e := range a.log {
		if !e.ended {
			lines = append(lines, e.line)
		}
	}
	return lines
}
