package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// AwaitMoved waits until the guest uses the new claims. It fails when it will not: the VM was given other claims, its
// guest has ended, or the server does not copy the disks. stage is called with what the server says of the copy.
func AwaitMoved(ctx context.Context, api wait.API, m *Moving, stage func(string)) error {
	name, uid := m.VM.Name, m.VMI.UID
	condition := wait.Condition{Name: "to have its disks copied", Met: func(s wait.State) (bool, error) {
		switch {
		case s.VM == nil || s.VM.UID != m.VM.UID:
			return false, fmt.Errorf("VM %s was deleted", name)
		case !m.named(s.VM):
			return false, fmt.Errorf("the copy was cancelled: VM %s names other claims", name)
		case m.used(s.VMI):
			return !volumemigration.Says(s.VM), nil
		case !life.Alive(s.VMI) || s.VMI.UID != uid:
			return false, fmt.Errorf("the guest of VM %s ended before its disks were copied; %s gives the VM the "+
				"old claims, which have the data", name, m.back)
		}
		if c := conditions.With(s.VMI.Status.Conditions, volumemigration.Condition, corev1.ConditionTrue); c != nil {
			stage(c.Message)
		}
		return false, m.ignored(s)
	}}
	state, err := wait.Until(ctx, api, m.VM.Namespace, name, condition)
	if !errors.Is(err, action.ErrTimeout) {
		return err
	}
	if state.VMI != nil {
		c := conditions.With(state.VMI.Status.Conditions, volumemigration.Condition, corev1.ConditionTrue)
		if c != nil {
			err = fmt.Errorf("%w; %s", err, c.Message)
		}
	}
	return fmt.Errorf("%w; the copy goes on, and %s takes it back", err, m.back)
}

// named reports whether a VM names the new claims.
func (m *Moving) named(vm *v1.VirtualMachine) bool {
	for _, move := range m.Moves {
		if vm.Spec.Template == nil {
			return false
		}
		v := hotplug.Volume(&vm.Spec.Template.Spec, move.Volume)
		if v == nil || claims.Name(v) != move.To.Name {
			return false
		}
	}
	return true
}

// used reports whether a guest uses the new claims.
func (m *Moving) used(vmi *v1.VirtualMachineInstance) bool {
	if vmi == nil || len(vmi.Status.MigratedVolumes) > 0 {
		return false
	}
	for _, move := range m.Moves {
		if volumemigration.InUse(&vmi.Status, move.Volume) != move.To.Name {
			return false
		}
	}
	return true
}

// ignored returns why the server does not copy the disks: something was changed since Plan.
func (m *Moving) ignored(s wait.State) error {
	d := volumemigration.Follow(s.VM.Spec.UpdateVolumesStrategy, &s.VM.Spec.Template.Spec, s.VMI)
	for _, move := range m.Moves {
		if why := d.Refused["volumes["+move.Volume+"]"]; why != "" {
			return fmt.Errorf("%w; nothing is copied, and %s gives the VM the old claims",
				&staysError{move.Volume, why}, m.back)
		}
	}
	return nil
}

// AwaitCancelled waits until nothing is being copied any more.
func AwaitCancelled(ctx context.Context, api wait.API, namespace, name string) error {
	_, err := wait.Until(ctx, api, namespace, name, wait.Condition{
		Name: "to have the copy of its disks cancelled", Met: func(s wait.State) (bool, error) {
			if s.VM == nil {
				return false, action.NotFound(action.ResourceVMs, namespace, name)
			}
			return !volumemigration.Says(s.VM) && volumemigration.Away(s.VM, s.VMI) == nil, nil
		},
	})
	return err
}
