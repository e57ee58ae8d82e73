package lifecyclecmd

import (
	"context"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Undoable returns the entry that an undo outside of `virtctl undo` is about, and the names of its machines; or the
// error why none can be taken back.
func Undoable(f *cli.Factory) (entry journal.Entry, machines string, err error) {
	o := &UndoOptions{Creation: cli.NewCreation(f)}
	entries, server, err := known(f)
	if err == nil {
		entry, err = o.entry(entries, server)
	}
	return entry, entry.Objects(), err
}

// Undo takes the verb with an ID back as `virtctl undo ID` does, and prints nothing.
func Undo(ctx context.Context, f *cli.Factory, c *client.Client, id string) error {
	o := &UndoOptions{Creation: cli.NewCreation(f.Silent()), ID: id}
	o.DryRun = cli.DryRunNone
	entries, server, err := known(f)
	if err != nil {
		return err
	}
	entry, err := o.entry(entries, server)
	if err != nil {
		return err
	}
	return o.takeBack(ctx, c, entries, entry)
}

// known returns the journal's entries and the address of the cluster, without asking the cluster.
func known(f *cli.Factory) (entries []journal.Entry, server string, err error) {
	file, err := journalOf(f)
	if err != nil {
		return nil, "", err
	}
	entries, err = file.Read()
	return entries, f.Connection().Server, err
}
