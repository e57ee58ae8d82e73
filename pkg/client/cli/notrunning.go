package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
)

// vmGetter is what NotRunning asks.
type vmGetter interface {
	VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
}

// halted reports a VM that nothing but a request starts.
func halted(vm *v1.VirtualMachine) bool {
	strategy, err := vm.RunStrategy()
	return err == nil && (strategy == v1.RunStrategyHalted || strategy == v1.RunStrategyManual)
}

// NotRunning replaces err, if it is that target has no instance although there is a VM, by an error that the VM does
// not run, and what to do about it; to the server's "VM is not running" it adds the remedy. When there is no VM either,
// that is the error. Every verb that needs a running guest passes its error through here; any other error is returned
// as it is.
func (f *Factory) NotRunning(ctx context.Context, c vmGetter, target Target, err error) error {
	absent, refused := noInstance(err), RefusedAsStopped(err)
	if target.Instance || !absent && !refused {
		return err
	}
	vm, failed := c.VM(ctx, target.Namespace, target.Name)
	switch {
	case absent && apierrors.IsNotFound(failed):
		return failed
	case failed != nil:
		return err // which says what is missing
	}
	state, remedy := f.stopped(vm, target)
	if refused {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return fmt.Errorf("VM %s/%s: %s; %s", target.Namespace, target.Name, state, remedy)
}

// AskedToStart reports a VM that is to start although its status says yet, or still, that it is stopped: nobody need
// start it.
func AskedToStart(vm *v1.VirtualMachine) bool {
	if vm.Status.PrintableStatus != v1.VirtualMachineStatusStopped {
		return false
	}
	if runstrategy.Requested(vm, v1.StartRequest) {
		return true
	}
	strategy, err := vm.RunStrategy()
	switch {
	case err != nil:
		return false
	case strategy == v1.RunStrategyAlways:
		return true
	}
	// The guest of these may have ended by itself, which the status says once it is about this spec.
	return (strategy == v1.RunStrategyRerunOnFailure || strategy == v1.RunStrategyOnce) &&
		vm.Status.ObservedGeneration != 0 && vm.Status.ObservedGeneration < vm.Generation
}

// stopped returns what keeps a VM from having an instance, and what to do about it.
func (f *Factory) stopped(vm *v1.VirtualMachine, target Target) (state, remedy string) {
	why := fmt.Sprintf("`%s why %s%s` says ", f.Program, target.Name, f.InNamespace(target.Namespace))
	switch status := vm.Status.PrintableStatus; {
	case status == v1.VirtualMachineStatusStarting, AskedToStart(vm):
		return "it does not run yet", "it is being started, and " + why + "what it waits for"
	case status == v1.VirtualMachineStatusStopped, status == "" && halted(vm):
		return "it is stopped", f.StartIt(target)
	case status == "":
		return "it does not run yet: it is so new that virt-controller has not looked at it", why + "more"
	default:
		return fmt.Sprintf("it does not run, its status is %s", status), why + "what blocks it"
	}
}

// DoesNotStart returns a warning that a VM that is waited for cannot start, and the command that says what blocks it.
func (f *Factory) DoesNotStart(target Target, why string) string {
	return fmt.Sprintf("warning: VM %s/%s does not start: %s; `%s why %s%s` says what blocks it; waiting goes on",
		target.Namespace, target.Name, why, f.Program, target.Name, f.InNamespace(target.Namespace))
}

// StartIt returns how to start a VM that is stopped.
func (f *Factory) StartIt(target Target) string {
	return fmt.Sprintf("start it with `%s start %s%s`", f.Program, target.Name, f.InNamespace(target.Namespace))
}

// InNamespace returns the flag, after a space, with which a command is about a namespace; empty where that is the one
// that commands are about anyway.
func (f *Factory) InNamespace(namespace string) string {
	if ns, err := f.Namespace(); err == nil && ns == namespace {
		return ""
	}
	return " -n " + namespace
}

// noInstance reports that an instance does not exist.
func noInstance(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Kind == "" || details.Kind == "virtualmachineinstances"
}

// RefusedAsStopped reports a request that the server refused because the VM does not run. The words are KubeVirt's,
// whose virt-api has no reason of its own for it.
func RefusedAsStopped(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusConflict &&
		strings.HasSuffix(status.Status().Message, "VM is not running")
}
