package vmcontroller

import (
	"maps"

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
		return volumemigration.Decision{} // at the next start, as all changes
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
	view.VMI = after
	return true, nil
}
