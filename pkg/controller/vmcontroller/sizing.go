package vmcontroller

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// followSize finds out what of a changed VM its running guest is to have, and brings it into the VMI, from which
// virt-controller (pkg/controller/resizecontroller) and virt-handler take it. What the guest can have only when it is
// started again stays in the view. It reports whether the VMI is changed.
func (view *View) followSize() bool {
	instance := view.VMI
	if !life.Staying(instance) || upToDate(view.VM, instance) {
		return false
	}
	probe := *view
	template := probe.expand()
	if template == nil {
		return false // what stands in the way is said when the VM is started
	}
	view.Template = &template.Spec
	if instance.Status.Phase != v1.Running || migrations.Begun(instance) {
		return false // The guest has its size first, and then another.
	}
	view.Change = sizing.Of(&template.Spec.Domain, instance, !view.Staged)
	if !view.Change.Any() {
		return false
	}
	after := instance.DeepCopy()
	view.Change.Apply(&after.Spec.Domain)
	view.VMI = after
	return true
}

// tooLarge returns why a running guest cannot be given the size in its VMI, or "" when it can.
func tooLarge(instance *v1.VirtualMachineInstance) string {
	for _, kind := range []v1.VirtualMachineInstanceConditionType{
		v1.VirtualMachineInstanceVCPUChange,
		v1.VirtualMachineInstanceMemoryChange,
	} {
		if c := sizing.Resizing(instance, kind); c != nil && c.Reason == sizing.ReasonRestart {
			return c.Message
		}
	}
	return ""
}
