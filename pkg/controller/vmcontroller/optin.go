package vmcontroller

import (
	"maps"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// optedIn returns what volumemigration.OptInAnnotation is to be on a VM's VMI: the VM's own value, or that of its
// template.
func optedIn(vm *v1.VirtualMachine) (value string, given bool) {
	if value, given = vm.Annotations[volumemigration.OptInAnnotation]; given || vm.Spec.Template == nil {
		return value, given
	}
	value, given = vm.Spec.Template.ObjectMeta.Annotations[volumemigration.OptInAnnotation]
	return value, given
}

// followOptIn has a VMI say whether its guest is moved with its disks when it is evicted, for those who see the VMI
// only. It changes nothing of a guest that runs.
func (view *View) followOptIn() {
	if view.VM.DeletionTimestamp != nil || !life.Staying(view.VMI) {
		return
	}
	want, given := optedIn(view.VM)
	is, has := view.VMI.Annotations[volumemigration.OptInAnnotation]
	if want == is && given == has {
		return
	}
	after := view.VMI.DeepCopy()
	after.Annotations = maps.Clone(after.Annotations)
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	if given {
		after.Annotations[volumemigration.OptInAnnotation] = want
	} else {
		delete(after.Annotations, volumemigration.OptInAnnotation)
	}
	view.VMI = after
}
