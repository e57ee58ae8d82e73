package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Cancelled is a migration that was asked to end. It may be too late for that: see Wait.
type Cancelled struct {
	target    Target
	migration *v1.VirtualMachineInstanceMigration
	// Again is why virt-controller makes another at once, a clause; "" where nothing is known.
	Again string
}

// Cancel does MigrateCancel, and returns what was cancelled.
func Cancel(ctx context.Context, api API, t Target, o Options) (*Cancelled, error) {
	var c *Cancelled
	err := Same(ctx, api, t)
	if err == nil {
		c, err = cancelMigration(ctx, api, t, o)
	}
	if err != nil {
		return nil, &refusal{verb: MigrateCancel, target: t, err: err}
	}
	return c, nil
}

// cancelMigration deletes the machine's migration that is under way, which is how one is cancelled.
func cancelMigration(ctx context.Context, api API, t Target, o Options) (*Cancelled, error) {
	under, err := Migration(ctx, api, t)
	if err != nil {
		return nil, err
	}
	if under == nil {
		if err := missing(ctx, api, t); err != nil {
			return nil, err
		}
	}
	if under == nil || under.IsFinal() {
		return nil, noMigrationError{}
	}
	if t.Migration != "" && under.UID != t.Migration {
		return nil, errors.New("the migration that was meant is over, and another has begun, which goes on")
	}
	out := &Cancelled{target: t, migration: under}
	vm, vmi, err := machineOf(ctx, api, t)
	if err != nil {
		return nil, err
	}
	if vmi != nil {
		if CopiesDisks(under, vmi) {
			return nil, &CopyingError{Command: "virtctl volume migrate " + t.Name + " --cancel -n " + t.Namespace}
		}
		out.Again = again(under, vm, vmi)
	}
	opts := metav1.DeleteOptions{DryRun: o.dryRun()}
	if under.UID != "" { // virt-controller's have the same name again
		opts.Preconditions = &metav1.Preconditions{UID: &under.UID}
	}
	return out, api.Delete(ctx, client.Migrations, t.Namespace, under.Name, opts)
}

// machineOf returns what the cluster has of a machine; nil for what is not there, or may not be read: who may cancel a
// migration need not be allowed to.
func machineOf(
	ctx context.Context, api API, t Target,
) (vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, err error) {
	unread := func(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }
	if vmi, err = api.VMI(ctx, t.Namespace, t.Name); err != nil {
		vmi = nil
		if !unread(err) {
			return nil, nil, fmt.Errorf("look at instance %s/%s: %w", t.Namespace, t.Name, err)
		}
	}
	if t.Instance {
		return nil, vmi, nil
	}
	if vm, err = api.VM(ctx, t.Namespace, t.Name); err != nil {
		vm = nil
		if !unread(err) {
			return nil, nil, fmt.Errorf("look at %s: %w", t, err)
		}
	}
	return vm, vmi, nil
}

// CopiesDisks reports a migration that copies a guest's disks to the claims that its VM names. When it is cancelled
// virt-controller makes another, until the VM names the old claims again: `volume migrate --cancel`. One that brings
// disks along has the VM name them itself.
func CopiesDisks(m *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance) bool {
	return !volumemigration.WithDisks(m) && len(volumemigration.Moves(vmi)) > 0
}

// CopyingError is why a migration is not cancelled that CopiesDisks.
type CopyingError struct {
	// Command ends the copy.
	Command string
}

func (e *CopyingError) Error() string {
	return "its disks are being copied to other claims, which only `" + e.Command + "` cancels: virt-controller " +
		"would make the migration anew"
}

// again returns why virt-controller makes another migration as soon as m is cancelled.
func again(m *v1.VirtualMachineInstanceMigration, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) string {
	if why := migrations.Again(vmi, migrations.IsUpdate(m)); why != "" {
		return why
	}
	const copied = "its disks are to be copied to other claims"
	if volumemigration.WithDisks(m) {
		brought := volumemigration.MadeBy(&m.Status)
		for _, move := range volumemigration.Moves(vmi) {
			if !slices.ContainsFunc(brought,
				func(made volumemigration.Made) bool { return made.Volume == move.Volume }) {
				return copied
			}
		}
		return ""
	}
	if vm != nil && volumemigration.Between(vm, vmi) {
		return copied // once this migration is over
	}
	return ""
}

// TooLateError is that a migration was cancelled whose guest had moved.
type TooLateError struct {
	// Node is where the guest is now.
	Node   string
	Paused bool
}

func (e *TooLateError) Error() string {
	does := "runs"
	if e.Paused {
		does = "is paused"
	}
	return "it came too late: the guest has moved and " + does + " on " + e.Node
}

// CancelWaiter has the methods of a client that Wait calls.
type CancelWaiter interface {
	Watcher
	wait.API
}

// Wait waits until the migration is over, and returns the machine as it is then. The error of one that had moved the
// guest is a TooLateError, that of a ctx which runs out an action.ErrTimeout.
func (c *Cancelled) Wait(ctx context.Context, api CancelWaiter) (wait.State, error) {
	namespace, name := c.target.Namespace, c.target.Name
	last, err := Follow(ctx, api, namespace, c.migration.Name, nil)
	if errors.Is(err, action.ErrTimeout) || errors.Is(err, context.Canceled) {
		return wait.State{}, err
	}
	// Any other error is how it ended, or that migrations cannot be watched: the instance says the rest.
	of := func(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstanceMigrationState {
		if vmi == nil || vmi.Status.MigrationState == nil ||
			vmi.Status.MigrationState.MigrationUID != c.migration.UID {
			return nil
		}
		return vmi.Status.MigrationState
	}
	state, err := wait.Until(ctx, api, namespace, name, wait.Condition{
		Name: "to migrate no more", Gone: true, Met: func(s wait.State) (bool, error) {
			ms := of(s.VMI)
			return ms == nil || migrations.Over(ms), nil
		},
	})
	if err != nil {
		return state, err
	}
	moved := migrations.Succeeded(of(state.VMI)) || last != nil && last.Status.Phase == v1.MigrationSucceeded
	if !moved || state.VMI == nil {
		return state, nil
	}
	late := &TooLateError{
		Node:   state.VMI.Status.NodeName,
		Paused: conditions.True(state.VMI.Status.Conditions, v1.VirtualMachineInstancePaused),
	}
	return state, &refusal{verb: MigrateCancel, target: c.target, err: late}
}

// missing returns the server's error that there is no such machine; nil where there is one, or it may not be read. A
// VM's name is also that of an instance without a VM.
func missing(ctx context.Context, api API, t Target) error {
	_, err := api.VMI(ctx, t.Namespace, t.Name)
	if !t.Instance && apierrors.IsNotFound(err) {
		_, err = api.VM(ctx, t.Namespace, t.Name)
	}
	if apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// noMigrationError is an action.ErrNotFound.
type noMigrationError struct{}

func (noMigrationError) Error() string        { return "found no migration to cancel" }
func (noMigrationError) Is(target error) bool { return target == action.ErrNotFound }
