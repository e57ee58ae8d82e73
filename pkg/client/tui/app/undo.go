package app

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// undoRead is what an undo would take back.
type undoRead struct {
	world *page.World
	last  *page.Undoable
	err   error
}

// undo asks whether the last verb is to be taken back, once it is known which that is.
func (a *App) undo() tea.Cmd {
	w := a.World
	if w.ReadOnly {
		a.notice = page.Capital(page.ReadOnly)
		return nil
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		last, err := w.Actions.Undoable(ctx)
		return undoRead{w, last, err}
	}
}

// askUndo asks. Meanwhile the user may be asked something else.
func (a *App) askUndo(m undoRead) {
	switch {
	case m.world != a.World || a.ask != nil || a.prompt != nil:
		return
	case m.err != nil:
		a.notice = page.Capital(a.World.Say(m.err))
		return
	}
	w, id := m.world, m.last.ID
	words := w.Line(w.Program, "undo", id)
	a.ask = &question{Ask: page.Ask{
		Question: undoQuestion(m.last, duration.HumanDuration(w.Now().Sub(m.last.At))),
		Task: page.Task{Line: words, Bounded: true, Do: func(ctx context.Context) error {
			return w.Actions.Undo(ctx, id) // each of its requests has its own time, as those of the verb had
		}},
	}}
}

// undoQuestion returns what is asked before a verb is taken back.
func undoQuestion(last *page.Undoable, ago string) string {
	if last.Verb == lifecycle.RestoreKeep {
		return fmt.Sprintf("Undo the restore of %s, asked %s ago? Its spec is as before, and its volumes are those "+
			"that were kept.", last.Machines, ago)
	}
	return fmt.Sprintf("Undo the %s of %s, asked %s ago?", last.Verb, last.Machines, ago)
}
