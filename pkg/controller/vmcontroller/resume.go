package vmcontroller

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// A VM that was restored with its guest's memory has savedmemory.ResumeAnnotation. Its next instance gets it, too; once
// that runs the VM loses it. An instance that ends before leaves it there, since its guest may not have gone on yet: on
// the memory's claim is a record whether it has, which launchers keep.

// reasonResumed is that of an event.
const reasonResumed = "ResumedFromSnapshot"

// resumed reports a VM whose instance has gone on from the memory of a snapshot.
func (view *View) resumed() bool {
	mark, ok := view.VM.Annotations[savedmemory.ResumeAnnotation]
	return ok && view.VMI != nil && view.VMI.Annotations[savedmemory.ResumeAnnotation] == mark &&
		view.VMI.Status.Phase == v1.Running
}

// forgetResume is the step that takes the annotation from the VM.
func (view *View) forgetResume() Step {
	return Step{Resumed: true, Events: []vmicontroller.Event{{
		Type: corev1.EventTypeNormal, Reason: reasonResumed,
		Message: "The guest has gone on from the memory of the snapshot that the VM was restored from",
	}}}
}

// resume has an instance that is to be made go on from the memory of a snapshot. Its interfaces keep the addresses that
// the guest knows.
func resume(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) {
	text, ok := vm.Annotations[savedmemory.ResumeAnnotation]
	if !ok {
		return
	}
	vmi.Annotations[savedmemory.ResumeAnnotation] = text
	mark, err := savedmemory.ResumeOf(vm.Annotations)
	if err != nil {
		return // The launcher says so, and does not boot the guest.
	}
	interfaces := vmi.Spec.Domain.Devices.Interfaces
	for i := range interfaces {
		if mac := mark.MACs[interfaces[i].Name]; mac != "" && interfaces[i].MacAddress == "" {
			interfaces[i].MacAddress = mac
		}
	}
}
