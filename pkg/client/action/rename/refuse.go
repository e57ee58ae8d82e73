package rename

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// RefusedError says why a VM is not renamed, and what to do about it.
type RefusedError struct{ text string }

func (e *RefusedError) Error() string { return e.text }

func refused(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// Refuse returns why a VM cannot be renamed now; nil when it can. vmi is the instance of its name, nil where there is
// none, and rivals are VMs that wait for its place.
func Refuse(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, rivals []string) error {
	name := vm.Namespace + "/" + vm.Name
	stop := fmt.Sprintf("`virtctl stop %s -n %s`", vm.Name, vm.Namespace)
	stopping := refused("VM %s is being stopped; wait until it is: `virtctl wait %s --for=stopped -n %s`", name,
		vm.Name, vm.Namespace)
	if owner := metav1.GetControllerOfNoCopy(vm); owner != nil {
		return refused("VM %s belongs to %s %s, which would make another in its place; take it out of that first", name,
			owner.Kind, owner.Name)
	}
	if vmi != nil {
		if stops(vm, vmi) {
			return stopping
		}
		return refused("VM %s has an instance; stop it first: %s", name, stop)
	}
	strategy, err := vm.RunStrategy()
	switch {
	case err != nil:
		return refused("VM %s: %v", name, err)
	case !slices.Contains([]v1.VirtualMachineRunStrategy{v1.RunStrategyHalted, v1.RunStrategyManual}, strategy):
		return refused("VM %s has run strategy %s, with which it starts by itself; stop it first: %s, or "+
			"`virtctl set run-strategy %s Halted -n %s`", name, strategy, stop, vm.Name, vm.Namespace)
	case vm.Spec.Template == nil:
		return refused("VM %s has no spec.template", name)
	}
	status := &vm.Status
	switch kind, holder := snapshots.Holder(vm, ""); {
	case runstrategy.Requested(vm, v1.StopRequest) && !runstrategy.Requested(vm, v1.StartRequest):
		return stopping
	case len(status.StateChangeRequests) > 0:
		return refused("VM %s was asked to %s; wait until it has, then stop it: %s", name,
			strings.ToLower(string(status.StateChangeRequests[0].Action)), stop)
	case len(status.VolumeRequests) > 0:
		return refused("VM %s has volumes that are being plugged; wait until they are", name)
	case kind == snapshots.HolderSnapshot:
		return refused("VM %s is part of snapshot %s, which is being taken; wait until it is", name, holder)
	case kind == snapshots.HolderRestore:
		return refused("VM %s is being restored by %s; wait until it is", name, holder)
	case vm.Annotations[reserved.DisksBrought] != "":
		return refused("VM %s has disks that a migration has brought, whose end is not tidied up yet; wait until its "+
			"annotation %s is gone", name, reserved.DisksBrought)
	case savedmemory.Pending(vm) != nil:
		return refused(
			"VM %s goes on from the memory of a snapshot when it is started next, by this name; start and stop it "+
				"before it is renamed (`virtctl start %s -n %s`), or have it boot: `%s`",
			name,
			vm.Name,
			vm.Namespace,
			savedmemory.Forget(vm.Namespace, vm.Name),
		)
	case len(rivals) > 0:
		return refused("VM %s is being renamed to %s, too; `virtctl delete %s -n %s` gives that up", name, rivals[0],
			rivals[0], vm.Namespace)
	}
	return nil
}

// stops reports whether a VM that has an instance will have none without being asked to: with Halted it is stopped
// already, with Manual when the stop of its instance is under way and no start follows.
func stops(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	switch strategy, err := vm.RunStrategy(); {
	case err != nil:
		return false
	case strategy == v1.RunStrategyHalted:
		return true
	case strategy != v1.RunStrategyManual, runstrategy.Requested(vm, v1.StartRequest):
		return false
	}
	return vmi.DeletionTimestamp != nil || vmi.IsFinal() || runstrategy.Requested(vm, v1.StopRequest)
}
