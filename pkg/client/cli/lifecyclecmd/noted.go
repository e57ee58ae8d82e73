package lifecyclecmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// own are the commands that write the journal themselves, once they know of which machines. The entry of any other
// that changes the cluster is written with its first change.
var own = []string{
	"start", "stop", "restart", "pause", "unpause", "reset", "soft-reboot", "migrate", "migrate-cancel",
	"evacuate-cancel", "rename", "delete", "undo", "set", "edit", "addvolume", "removevolume", "snapshot restore",
	"dashboard",
}

// Verb returns the command's verb in the journal.
func Verb(cmd *cobra.Command) lifecycle.Verb {
	_, words, _ := strings.Cut(cmd.CommandPath(), cmd.Root().DisplayName()+" ")
	if strings.HasPrefix(words, string(lifecycle.Set)+" ") {
		return lifecycle.Set
	}
	return lifecycle.Verb(words)
}

// NoteChanges records a command that is about to run in the journal, once it has changed something: undo would pass
// over what the journal does not have.
func NoteChanges(f *cli.Factory, cmd *cobra.Command) {
	if verb := Verb(cmd); !slices.Contains(own, string(verb)) && !dry(cmd) {
		f.OnChange(func(by *cli.Factory) { noteOther(by, verb, cmd.Flags().Args()) })
	}
}

// NoteRest records a command that has ended in the journal, if it changed something and the journal does not have it:
// one that was interrupted, or failed half way.
func NoteRest(f *cli.Factory, cmd *cobra.Command) {
	if by := f.Unjournaled(); by != nil && !dry(cmd) {
		noteOther(by, Verb(cmd), cmd.Flags().Args())
	}
}

// dry reports a command that is run with --dry-run, which the body of some requests says.
func dry(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup("dry-run")
	return flag != nil && flag.Value.String() != flag.DefValue
}

// RecordOther writes a verb that undo cannot take back into the journal, with what it was asked of.
func RecordOther(f *cli.Factory, verb lifecycle.Verb, arguments ...string) error {
	if err := write(f, &journal.Entry{Verb: verb, Machines: []journal.Machine{}, Arguments: arguments}); err != nil {
		return fmt.Errorf("%s was done, and undo does not know of it: %w", verb, err)
	}
	return nil
}

func noteOther(f *cli.Factory, verb lifecycle.Verb, arguments []string) {
	if err := RecordOther(f, verb, arguments...); err != nil && f.IO.ErrIsTTY {
		fmt.Fprintf(f.IO.ErrOut, "warning: %v\n", err)
	}
}

// write adds an entry of now, and of the cluster that is in use.
func write(f *cli.Factory, entry *journal.Entry) error {
	f.Journaled() // also where that fails, of which the user reads once
	connection := f.Connection()
	entry.Time, entry.Server, entry.Context = f.Now().UTC(), connection.Server, connection.Context
	file, err := journalOf(f)
	if err != nil {
		return err
	}
	return file.Append(*entry)
}
