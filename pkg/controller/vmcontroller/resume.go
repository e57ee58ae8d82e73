package vmcontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// A VM that was restored with its guest's memory has savedmemory.ResumeAnnotation. Its next VMI gets it, too; once
// that runs the VM loses it. A VMI that ends before leaves it there, since its guest may not have gone on yet: on
// the memory's claim is a record whether it has, which launchers keep.

const (
	// reasonResumed is the reason of an event.
	reasonResumed = "ResumedFromSnapshot"
	// reasonNotResumed is the Failure reason, and that of an event, of a VM whose guest must not be resumed.
	reasonNotResumed = names.ReasonMemoryMisfit
)

// lookAtMemory finds out whether the disks of a VM that is about to start fit the memory from which its guest is to go
// on.
func (r *Reconciler) lookAtMemory(ctx context.Context, view *View) error {
	vm := view.VM
	mark := savedmemory.Pending(vm)
	if mark == nil || view.VMI != nil || snapshots.Restoring(vm) {
		return nil
	}
	found := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range append(snapshots.ClaimNames(&vm.Spec), mark.Claim) {
		claim := &corev1.PersistentVolumeClaim{}
		// Live: the cache may not show yet what the restore has made.
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: name}, claim)
		switch {
		case err == nil:
			found[name] = claim
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get claim %s: %w", name, err)
		}
	}
	if trouble := snapshots.ResumeTrouble(vm, mark, found); trouble != "" {
		view.Misfit = fmt.Sprintf("the guest cannot go on from the memory in claim %s: %s; to boot it from its disks "+
			"instead, remove the VM's annotation %s: %s", mark.Claim, trouble, savedmemory.ResumeAnnotation,
			savedmemory.Forget(vm.Namespace, vm.Name))
	}
	return nil
}

// reportMisfit keeps a VM from starting whose disks do not fit the memory from which its guest is to go on, and records
// an event for it, once.
func (s *Step) reportMisfit() { s.report(reasonNotResumed, s.After.Misfit) }

// report makes something the VM's Failure, and records an event for it, once.
func (s *Step) report(reason, message string) {
	view := &s.After
	if view.fail(reason, message); !hasFailure(view.VM, view.Failure) {
		s.Events = append(s.Events, vmicontroller.Event{
			Type: corev1.EventTypeWarning, Reason: view.FailureReason, Message: view.Failure,
		})
	}
}

// resumed reports a VM whose VMI has gone on from the memory of a snapshot.
func (view *View) resumed() bool {
	mark, ok := view.VM.Annotations[savedmemory.ResumeAnnotation]
	return ok && view.VMI != nil && view.VMI.Annotations[savedmemory.ResumeAnnotation] == mark &&
		view.VMI.Status.Phase == v1.Running
}

// forgetResume returns the step that takes the annotation from the VM.
func (view *View) forgetResume() Step {
	return Step{Resumed: true, Events: []vmicontroller.Event{{
		Type: corev1.EventTypeNormal, Reason: reasonResumed,
		Message: "The guest has gone on from the memory of the snapshot that the VM was restored from",
	}}}
}

// resume has a new VMI go on from the memory of a snapshot. Its interfaces keep the addresses that
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
