package lifecyclecmd

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// because is an error said in better words; what it is stays.
type because struct {
	text string
	err  error
}

func (e *because) Error() string { return e.text }
func (e *because) Unwrap() error { return e.err }

// refused adds to the server's word what would help: of a start what it waits for, and of what needs a running guest
// how to start it.
func (o *Options) refused(ctx context.Context, c *client.Client, t lifecycle.Target, err error) error {
	if gone := (*lifecycle.GoneError)(nil); errors.As(err, &gone) {
		return err // what would help is of another machine
	}
	switch o.Verb {
	case lifecycle.Start:
		return o.alreadyAsked(ctx, c, t, err)
	case lifecycle.MigrateCancel:
		return copying(o.Factory, t, err)
	case lifecycle.Stop, lifecycle.Delete, lifecycle.EvacuateCancel:
		return err
	}
	return o.Factory.NotRunning(ctx, c, named(t), err)
}

// alreadyAsked returns the error of a start that was refused because the VM is to run already, while its guest does not
// run: with the VM's status, and the command that fixes it or says more.
func (o *Options) alreadyAsked(ctx context.Context, c *client.Client, t lifecycle.Target, err error) error {
	if !apierrors.IsConflict(err) {
		return err
	}
	vm, failed := c.VM(ctx, t.Namespace, t.Name)
	if failed != nil {
		return err // which is the server's word
	}
	flag := o.Factory.InNamespace(t.Namespace)
	status := vm.Status.PrintableStatus
	switch status {
	case v1.VirtualMachineStatusPaused:
		return &because{fmt.Sprintf("%v; it is paused, and `%s unpause %s%s` lets it run on", err, o.Factory.Program,
			t.Name, flag), err}
	case "", v1.VirtualMachineStatusRunning, v1.VirtualMachineStatusMigrating, v1.VirtualMachineStatusStopped,
		v1.VirtualMachineStatusStopping:
		return err
	}
	return &because{fmt.Sprintf("start %s: it was asked to start already, and its status is %s; `%s why %s%s` says "+
		"what blocks it", t, status, o.Factory.Program, t.Name, flag), err}
}

// stopping reports that a stop that is to be waited for was refused because the VM is on its way down already, or was
// when the server looked.
func (o *Options) stopping(ctx context.Context, c *client.Client, t lifecycle.Target, err error) bool {
	if o.Verb != lifecycle.Stop || !o.Wait || !apierrors.IsConflict(err) {
		return false
	}
	vm, failed := c.VM(ctx, t.Namespace, t.Name)
	if failed != nil {
		return false
	}
	strategy, failed := vm.RunStrategy()
	return failed == nil && strategy == v1.RunStrategyHalted &&
		(!cli.RefusedAsStopped(err) || vm.Status.PrintableStatus == v1.VirtualMachineStatusStopping)
}

// copying has the error of a cancel that was refused since disks are being copied name the command as the user types
// it.
func copying(f *cli.Factory, t lifecycle.Target, err error) error {
	if e := (*lifecycle.CopyingError)(nil); errors.As(err, &e) {
		e.Command = fmt.Sprintf("%s volume migrate %s%s --cancel", f.Program, t.Name, f.InNamespace(t.Namespace))
	}
	return err
}

// note says of a migration that is cancelled that virt-controller makes another.
func (o *Options) note(r *request) {
	if r.cancelled != nil && r.cancelled.Again != "" {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: virt-controller will migrate VM %s again: %s\n", o.name(r.target),
			r.cancelled.Again)
	}
}
