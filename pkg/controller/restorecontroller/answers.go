package restorecontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
)

// What follows from what the API server answers to a step.

// wouldRefuse returns why a VM will not be taken, given the answer to its rehearsal. An error that another try may not
// meet is returned as such; that the VM exists, or may not be made yet, is for the try itself to find.
func wouldRefuse(vm *v1.VirtualMachine, answer error) (trouble string, err error) {
	switch {
	case frame.Malformed(answer):
		return fmt.Sprintf("VM %s would be refused: %v", vm.Name, answer), nil
	case answer != nil && !apierrors.IsForbidden(answer) && !apierrors.IsAlreadyExists(answer):
		return "", fmt.Errorf("rehearse the creation of VM %s: %w", vm.Name, answer)
	}
	return "", nil
}

// refused returns the step of a restore whose write was refused: its conditions say so, and it is tried again. One that
// is being deleted ends, so that neither it nor its target waits for ever. It is nil for what is no refusal, such as a
// conflict with another's write.
func (v *View) refused(err error) *Step {
	if v.Restore.Status == nil || !frame.Refused(err) {
		return nil
	}
	if v.Restore.DeletionTimestamp == nil {
		return new(v.stuck(err.Error()))
	}
	return &Step{
		Release: v.held(), RemoveFinalizer: true,
		Events: []Event{{
			corev1.EventTypeWarning, reasonError,
			fmt.Sprintf("VirtualMachineRestore is deleted before its end: %v; %s", err, v.outcome()),
		}},
	}
}
