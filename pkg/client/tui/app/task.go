package app

import (
	"cmp"
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// logged adds a line to the command log.
func (a *App) logged(line string) int {
	a.log = append(a.log, entry{at: a.World.Now(), line: line})
	return len(a.log) - 1
}

// start does a task while the dashboard goes on.
func (a *App) start(t page.Task) tea.Cmd {
	index := a.logged(t.Line)
	a.log[index].brief = cmp.Or(t.Brief, t.Line)
	a.log[index].progress = t.Progress
	a.notice = a.log[index].brief
	if t.Begin != nil {
		t.Begin()
	}
	do := func() tea.Msg {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if !t.Bounded {
			ctx, cancel = context.WithTimeout(ctx, time.Minute)
		}
		defer cancel()
		return taskEnded{index, t.Do(ctx), t.Then}
	}
	if t.Began != nil {
		return tea.Batch(page.Send(t.Began), do)
	}
	return do
}

func (a *App) ended(index int, err error) {
	a.log[index].ended, a.log[index].err = true, err
	switch line := a.log[index].brief; {
	case errors.Is(err, page.ErrCancelled):
		a.notice = "Cancelled: " + line
	case err != nil:
		a.fail(line + ": " + a.World.Say(err))
	case a.notice == "" || a.notice == line: // else another thing is said since
		a.notice = a.theme().Done + " " + line
	}
}
