package lifecyclecmd

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// RestoreKind is the kind of object that restores a snapshot.
var RestoreKind = cli.Kind[*snapshotv1beta1.VirtualMachineRestore]{
	Name: "restore", Resource: "virtualmachinerestore.snapshot.kubevirt.io",
	Create: snapshot.CreateRestore, Wait: snapshot.WaitRestore,
}

// NoteRestore writes a restore over a VM into the journal; undoes is the entry that it takes back, if any. What cannot
// be recorded is warned of, and stands.
func NoteRestore(f *cli.Factory, r *snapshotv1beta1.VirtualMachineRestore, vm types.UID, keep bool, undoes string) {
	if err := RecordRestore(f, r, vm, keep, undoes); err != nil && f.IO.ErrIsTTY {
		fmt.Fprintf(f.IO.ErrOut, "warning: %v\n", err)
	}
}

// RecordRestore records a restore as NoteRestore does, and returns the error, which the caller reports.
func RecordRestore(
	f *cli.Factory, r *snapshotv1beta1.VirtualMachineRestore, vm types.UID, keep bool, undoes string,
) error {
	entry := journal.Entry{
		Verb: lifecycle.Restore, Undoes: undoes, Machines: []journal.Machine{{
			Namespace: r.Namespace, Name: r.Spec.Target.Name, UID: vm, Restore: r.Name,
		}},
	}
	if keep {
		entry.Verb = lifecycle.RestoreKeep
	}
	if err := write(f, &entry); err != nil {
		return fmt.Errorf("undo does not know of the restore: %w", err)
	}
	return nil
}

// undoRestore gives a VM back what a restore has replaced and kept, by another restore.
func (o *UndoOptions) undoRestore(
	ctx context.Context, c *client.Client, entries []journal.Entry, entry journal.Entry,
) error {
	m, err := o.one(ctx, c, entries, entry, "restore")
	if err != nil {
		return err
	}
	of, err := snapshot.GetRestore(ctx, c, m.Namespace, m.Restore)
	if err != nil {
		return fmt.Errorf("cannot undo the restore of %s: %w", m, err)
	}
	back, err := RestoreKind.Send(ctx, c, &o.Creation,
		snapshot.NewUndo("undo-"+o.Factory.RandomName(5)+"-"+of.Name, of))
	if err != nil {
		return err
	}
	if o.DryRun == cli.DryRunNone {
		NoteRestore(o.Factory, back, m.UID, true, entry.ID)
	}
	if back, err = RestoreKind.Await(ctx, c, &o.Creation, back); err != nil {
		return err
	}
	return o.printRestore(of, back)
}

// printRestore prints what was made, which claims the VM does not use any more, and after a wait what is true then.
func (o *UndoOptions) printRestore(of, back *snapshotv1beta1.VirtualMachineRestore) error {
	if o.Output.Given() {
		return o.Output.Print(back, o.Factory.IO.Out)
	}
	_, err := fmt.Fprintf(o.Factory.IO.Out,
		"%s/%s created%s, which undoes %s\n",
		RestoreKind.Resource, back.Name, o.DryRun.Suffix(), of.Name)
	if claims := snapshot.Claims(of); err == nil && len(claims) > 0 && o.DryRun == cli.DryRunNone {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: VM %s/%s does not use these claims after that, which stay: %s\n",
			of.Namespace, of.Spec.Target.Name, strings.Join(claims, ", "))
	}
	if err == nil && o.Wait {
		_, err = fmt.Fprintf(o.Factory.IO.Out, "VM %s has again what it had before %s, which is undone\n",
			of.Spec.Target.Name, of.Name)
	}
	return err
}
