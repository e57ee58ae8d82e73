package vmcontroller

import (
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// placing returns what the placement in the view's template means for its VMI.
func (view View) placing() rollout.Placing {
	template := view.template()
	if template == nil {
		return rollout.Placing{}
	}
	return rollout.Place(template, view.VMI, !view.Staged)
}

// followPlacement brings node selector, affinity and tolerations of a changed VM into its VMI, whose next pod has them:
// that to which the guest migrates. The pod that it has stays as it is. A guest that moves gets there first. It reports
// whether the VMI is changed.
func (view *View) followPlacement() bool {
	instance := view.VMI
	if !life.Staying(instance) || migrations.Begun(instance) || upToDate(view.VM, instance) {
		return false
	}
	placing := view.placing()
	if len(placing.Changed) == 0 {
		return false
	}
	view.VMI = instance.DeepCopy()
	placing.Spec.Apply(&view.VMI.Spec)
	return true
}
