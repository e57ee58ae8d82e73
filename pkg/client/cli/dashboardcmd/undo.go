package dashboardcmd

import (
	"context"
	"fmt"

	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

func (a *actions) Undoable(context.Context) (*page.Undoable, error) {
	entry, machines, err := lifecyclecmd.Undoable(a.factory)
	if err != nil {
		return nil, err
	}
	if more := len(entry.Machines) - undoNames; more > 0 {
		entry.Machines = entry.Machines[:undoNames]
		machines = fmt.Sprintf("%d machines: %s and %d more", undoNames+more, entry.Objects(), more)
	}
	return &page.Undoable{ID: entry.ID, Verb: entry.Verb, Machines: machines, At: entry.Time}, nil
}

// undoNames is how many machines the question names.
const undoNames = 10

func (a *actions) Undo(ctx context.Context, id string) error {
	return lifecyclecmd.Undo(ctx, a.factory, a.client, id)
}
