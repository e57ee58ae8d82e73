package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
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

// NotRunning says of err that target's VM does not run, and what to do about it, when err is that there is no instance
// although there is a VM. Any other error is returned as it is.
func (f *Factory) NotRunning(ctx context.Context, c vmGetter, target Target, err error) error {
	if err == nil || target.Instance || !apierrors.IsNotFound(err) {
		return err
	}
	vm, failed := c.VM(ctx, target.Namespace, target.Name)
	if failed != nil {
		return err // which says what is missing; the VM is, too
	}
	flag := ""
	if ns, failed := f.Namespace(); failed == nil && ns != target.Namespace {
		flag = " -n " + target.Namespace
	}
	switch status := vm.Status.PrintableStatus; {
	case status == v1.VirtualMachineStatusStopped, status == "" && halted(vm):
		return fmt.Errorf("VM %s/%s: it is stopped; start it with `%s start %s%s`", target.Namespace, target.Name,
			f.Program, target.Name, flag)
	case status == "":
		return fmt.Errorf("VM %s/%s: it does not run yet: it is so new that virt-controller has not looked at it; "+
			"`%s why %s%s` says more", target.Namespace, target.Name, f.Program, target.Name, flag)
	}
	return fmt.Errorf("VM %s/%s: it does not run, its status is %s; `%s why %s%s` says what blocks it",
		target.Namespace, target.Name, vm.Status.PrintableStatus, f.Program, target.Name, flag)
}
