package vmcontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// claims returns what the claims in the view's template mean for its VMI.
func (view View) claims() volumemigration.Decision {
	template := view.template()
	if template == nil || !life.Running(view.VMI) || view.VMI.Annotations[rollout.TemplateHashAnnotation] == "" {
		return volumemigration.Decision{}
	}
	if view.Staged && !volumemigration.Pending(view.VMI) {
		return volumemigration.Stay(view.VM.Spec.UpdateVolumesStrategy, template, view.VMI)
	}
	return volumemigration.Follow(view.VM.Spec.UpdateVolumesStrategy, template, view.VMI)
}

// followClaims brings the claims to which the disks of a running guest are to be copied into its VMI, or those that it
// had, when the VM names these again. virt-controller (pkg/controller/volumemigrationcontroller) and the guest's nodes
// do the rest. It reports whether the VMI is changed.
func (view *View) followClaims() (bool, error) {
	decision := view.claims()
	if decision.Volumes == nil {
		return false, nil
	}
	made, err := volumemigration.Remember(view.VMI, decision.Volumes)
	if err != nil {
		return false, err
	}
	after := view.VMI.DeepCopy()
	after.Spec.Volumes = decision.Volumes
	after.Annotations = maps.Clone(after.Annotations)
	after.Annotations[volumemigration.MovedAnnotation] = made
	if err := volumemigration.NoteCopies(view.VMI, after, !decision.Reverts); err != nil {
		return false, err
	}
	view.VMI = after
	return true, nil
}

// forgetCopies takes out of the VMI's hotplug.CopiesAnnotation what is not being copied any more: the guest has come to
// the new claim, or lost the volume.
func (view *View) forgetCopies() error {
	if view.VMI == nil || view.VMI.Annotations[hotplug.CopiesAnnotation] == "" {
		return nil
	}
	after := view.VMI.DeepCopy()
	if err := volumemigration.NoteCopies(view.VMI, after, false); err != nil {
		return err
	}
	if after.Annotations[hotplug.CopiesAnnotation] != view.VMI.Annotations[hotplug.CopiesAnnotation] {
		view.VMI = after
	}
	return nil
}

// lookAtBrought finds the migration that has made the VM name its claims, while it may take that back. One that is gone
// takes nothing back.
func (r *Reconciler) lookAtBrought(ctx context.Context, view *View) error {
	record := volumemigration.RecordOf(view.VM)
	if record == nil {
		return nil
	}
	var list v1.VirtualMachineInstanceMigrationList
	err := r.Client.List(ctx, &list, client.InNamespace(view.VM.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	view.Brought = slices.ContainsFunc(list.Items, func(m v1.VirtualMachineInstanceMigration) bool {
		return m.UID == record.Migration && slices.Contains(m.Finalizers, volumemigration.WithDisksFinalizer)
	})
	return nil
}
