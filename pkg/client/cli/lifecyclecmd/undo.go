package lifecyclecmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/rename"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// UndoOptions of `virtctl undo`.
type UndoOptions struct {
	cli.Creation

	// ID is the entry of the journal to take back; empty for the last.
	ID   string
	List bool
}

// NewCmdUndo makes `virtctl undo`.
func NewCmdUndo(f *cli.Factory) *cobra.Command {
	o := &UndoOptions{Creation: cli.NewCreation(f)}
	cmd := &cobra.Command{
		Use:   "undo [ID]",
		Short: "Undo the last verb that changed something, or an earlier one",
		Long: `Undo the last verb that changed something in this cluster from this account, or the one with an ID that --list
shows: start and stop, pause and unpause undo each other, and rename itself. A snapshot that was restored with
--keep is taken back by another restore, and what it has made stays. All others, such as set, scale, create and
snapshot create, cannot be undone, and undo says why instead of passing them over. Nothing is done to a machine
that has changed since: one that was deleted or started anew, or whose run strategy is another.

The verbs, also those of the dashboard, are kept in $XDG_STATE_HOME/virtkit/journal.jsonl. What other programs ask is
not there. A cluster is known there by the URL of its API server, since to ask it who it is would cost each verb a
request and a right that its user may not have. Another cluster at the same URL is no danger: its machines are not
the ones that were asked.`,
		Example: cli.Examples(f.Program, `
			virtctl undo
			virtctl undo --dry-run=client
			virtctl undo --list
			virtctl undo 1767323045000000000 --wait`),
		Args:              cli.Args(0, 1, "one ID, which --list shows"),
		ValidArgsFunction: completeIDs(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.ID = args[0]
			}
			if err := o.checkID(); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return RunUndo(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.List, "list", false, "List what was asked, the newest first, and change nothing")
	o.AddFlags(cmd, "it is done", 5*time.Minute)
	return cmd
}

// checkID refuses what cannot be an ID.
func (o *UndoOptions) checkID() error {
	if o.ID == "" {
		return nil
	}
	if _, err := strconv.ParseUint(o.ID, 10, 64); err != nil {
		return cli.UsageErrorf("%q is no ID; `%s undo --list` shows them", o.ID, o.Factory.Program)
	}
	if o.List {
		return cli.UsageErrorf("an ID cannot be given with --list")
	}
	return nil
}

// RunUndo takes a verb back, or lists the verbs.
func RunUndo(ctx context.Context, o *UndoOptions) error {
	entries, server, err := asked(o.Factory)
	if err != nil {
		return err
	}
	if o.List {
		return o.list(journal.List(entries, server))
	}
	entry, err := o.entry(entries, server)
	if err != nil {
		return err
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	return o.takeBack(ctx, c, entries, entry)
}

// takeBack does what takes an entry back.
func (o *UndoOptions) takeBack(
	ctx context.Context, c *client.Client, entries []journal.Entry, entry journal.Entry,
) error {
	switch entry.Verb {
	case lifecycle.Rename:
		return o.undoRename(ctx, c, entries, entry)
	case lifecycle.RestoreKeep:
		return o.undoRestore(ctx, c, entries, entry)
	}
	verb, _ := journal.Reverse(entry.Verb) // there is one
	requests, errs := o.plan(ctx, c, entries, entry)
	asking := &Options{
		Factory: o.Factory, Output: o.Output, Verb: verb, GracePeriod: unset, DryRun: o.DryRun,
		Waiting: o.Waiting, undoes: entry.Verb,
	}
	return asking.carryOut(ctx, c, requests, errs, entry.ID)
}

// asked returns the journal's entries and the address of the cluster that is in use.
func asked(f *cli.Factory) (entries []journal.Entry, server string, err error) {
	file, err := journalOf(f)
	if err != nil {
		return nil, "", err
	}
	if entries, err = file.Read(); err != nil {
		return nil, "", err
	}
	config, err := f.RESTConfig()
	if err != nil {
		return nil, "", err
	}
	return entries, config.Host, nil
}

// entry returns the entry to take back: the one with the ID, which must not be undone yet, or the last one; and an
// error if no verb takes it back.
func (o *UndoOptions) entry(entries []journal.Entry, server string) (journal.Entry, error) {
	if o.ID == "" {
		entry, ok := journal.Last(entries, server)
		if !ok {
			return entry, fmt.Errorf("nothing to undo: no verb was asked of %s from this account", server)
		}
		if why := entry.Irreversible(); why != "" {
			return entry, fmt.Errorf("the last verb, %s, cannot be undone: %s; `%s undo --list` shows "+
				"those before it", &entry, why, o.Factory.Program)
		}
		return entry, nil
	}
	found, ok := journal.Find(entries, server, o.ID)
	switch {
	case !ok:
		return found.Entry, fmt.Errorf("ID %q %w; `%s undo --list` shows those of this cluster", o.ID,
			action.ErrNotFound, o.Factory.Program)
	case found.Undone:
		return found.Entry, fmt.Errorf("%s is undone already", &found.Entry)
	case found.Irreversible != "":
		return found.Entry, fmt.Errorf("%s cannot be undone: %s", &found.Entry, found.Irreversible)
	}
	return found.Entry, nil
}

// completeIDs completes the IDs of what can be undone, the newest first; no cluster is asked.
func completeIDs(f *cli.Factory) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if len(args) > 0 {
			return nil, directive
		}
		entries, server, err := asked(f)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, e := range journal.List(entries, server).Entries {
			if !e.Undone && e.Irreversible == "" {
				out = append(out, cobra.CompletionWithDesc(e.ID, e.String()))
			}
		}
		return out, directive
	}
}

// plan looks at the machines and makes requests for those of which the verb can be taken back.
func (o *UndoOptions) plan(
	ctx context.Context, c *client.Client, entries []journal.Entry, entry journal.Entry,
) ([]*request, []error) {
	var requests []*request
	var errs []error
	for _, m := range entry.Machines {
		if err := o.undoable(ctx, c, entries, entry, m); err != nil {
			errs = append(errs, err)
			continue
		}
		target := m.Target()
		if entry.Verb.OnInstance() {
			target.InstanceUID = m.InstanceUID
		}
		requests = append(requests, newRequest(target))
	}
	return requests, errs
}

// undoable looks at a machine of an entry and says why the verb cannot be taken back.
func (o *UndoOptions) undoable(
	ctx context.Context, c *client.Client, entries []journal.Entry, entry journal.Entry, m journal.Machine,
) error {
	name := m.Name
	if m.RenamedTo != "" {
		name = m.RenamedTo
	}
	var now journal.State
	vm, err := c.VM(ctx, m.Namespace, name)
	if err == nil {
		now.VM = vm
	}
	if err == nil || apierrors.IsNotFound(err) {
		vmi, vmiErr := c.VMI(ctx, m.Namespace, name)
		if err = vmiErr; err == nil {
			now.VMI = vmi
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look at %s: %w", m.Target(), err)
	}
	if entry.Verb == lifecycle.RestoreKeep {
		now.Restore, err = snapshot.GetRestore(ctx, c, m.Namespace, m.Restore)
		if apierrors.IsNotFound(err) {
			now.Restore = nil // the VM still says whether it was the last
		} else if err != nil {
			return fmt.Errorf("look at the restore of %s: %w", m.Target(), err)
		}
	}
	step := journal.Plan(entry.Verb, m, now)
	if step.Refusal == "" {
		return nil
	}
	why := step.Refusal
	if now.VM == nil || now.VM.UID != m.UID {
		if renamed := o.renamed(entries, entry, m); renamed != "" {
			why = renamed
		}
	}
	return fmt.Errorf("cannot undo the %s of %s: %s", entry.Verb, m, why)
}

// one returns the machine of an entry that must have exactly one, if the verb can be taken back; what names such an
// entry, for the error.
func (o *UndoOptions) one(
	ctx context.Context, c *client.Client, entries []journal.Entry, entry journal.Entry, what string,
) (journal.Machine, error) {
	if len(entry.Machines) != 1 {
		return journal.Machine{}, fmt.Errorf("the journal's entry %s is no %s of one VM", entry.ID, what)
	}
	return entry.Machines[0], o.undoable(ctx, c, entries, entry, entry.Machines[0])
}

// renamed returns, for a machine that was renamed since, the command that does under the present name what an undo
// would do.
func (o *UndoOptions) renamed(entries []journal.Entry, entry journal.Entry, m journal.Machine) string {
	name := journal.RenamedTo(entries, entry, m)
	verb, why := journal.Reverse(entry.Verb)
	if name == "" || why != "" || verb == lifecycle.RestoreKeep {
		return ""
	}
	words := []string{o.Factory.Program, string(verb), name}
	if verb == lifecycle.Rename {
		words = append(words, m.Name)
	}
	return fmt.Sprintf("it was renamed since, and its name is %s now; `%s -n %s` does it", name,
		strings.Join(words, " "), m.Namespace)
}

// undoRename gives a VM the name back that it had.
func (o *UndoOptions) undoRename(
	ctx context.Context, c *client.Client, entries []journal.Entry, entry journal.Entry,
) error {
	m, err := o.one(ctx, c, entries, entry, "rename")
	if err != nil {
		return err
	}
	back := &RenameOptions{
		Factory: o.Factory, Output: o.Output, DryRun: o.DryRun, Timeout: o.Timeout, Yes: true, undoes: entry.ID,
		Request: rename.Request{Namespace: m.Namespace, Name: m.RenamedTo, To: m.Name},
	}
	return back.run(ctx, c)
}

func (o *UndoOptions) list(report *journal.Report) error {
	if o.Output.Given() {
		return o.Output.Print(report, o.Factory.IO.Out)
	}
	if len(report.Entries) == 0 {
		if o.Factory.IO.ErrIsTTY {
			fmt.Fprintln(o.Factory.IO.ErrOut, "no verb was asked of this cluster from this account")
		}
		return nil
	}
	w := cli.NewTable(o.Factory.IO.Out)
	w.Row("ID", "AGE", "VERB", "MACHINES", "UNDO")
	for _, e := range report.Entries {
		undo, verb := "if unchanged since", e.Verb
		switch {
		case e.Undone:
			undo = "done"
		case e.Irreversible != "":
			undo = "no: " + e.Irreversible
		case verb == lifecycle.RestoreKeep:
			undo = "once it is complete, if unchanged since"
		}
		if verb == lifecycle.RestoreKeep {
			verb = lifecycle.Restore // what was typed
		}
		w.Row(e.ID, duration.HumanDuration(o.Factory.Now().Sub(e.Time)), string(verb), cmp.Or(e.Objects(), "-"), undo)
	}
	return w.Flush()
}
