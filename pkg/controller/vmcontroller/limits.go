package vmcontroller

import (
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// limiting returns what the rate limits in the VM's template mean for its VMI.
func (view View) limiting() rollout.Limiting {
	if view.VM.Spec.Template == nil {
		return rollout.Limiting{}
	}
	return rollout.Limit(view.VM.Spec.Template, view.VMI, !view.Staged)
}

// followLimits brings the rate limits of a VM's disks and interfaces into its VMI, from which virt-handler and
// virt-launcher take them. It reports whether the VMI is changed.
func (view *View) followLimits() bool {
	if !life.Staying(view.VMI) {
		return false
	}
	limiting := view.limiting()
	if !limiting.Changed {
		return false
	}
	view.VMI = view.VMI.DeepCopy()
	view.VMI.Annotations = limiting.Annotations
	return true
}
