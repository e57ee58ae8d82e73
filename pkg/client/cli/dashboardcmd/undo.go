package dashboardcmd

import (
	"context"

	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

func (a *actions) Undoable(context.Context) (*page.Undoable, error) {
	entry, machines, err := lifecyclecmd.Undoable(a.factory)
	if err != nil {
		return nil, err
	}
	return &page.Undoable{ID: entry.ID, Verb: entry.Verb, Machines: machines, At: entry.Time}, nil
}

func (a *actions) Undo(ctx context.Context, id string) error {
	return lifecyclecmd.Undo(ctx, a.factory, a.client, id)
}
