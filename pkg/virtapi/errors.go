package virtapi

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// conflict returns 409: the request makes sense, but not in the state that the VM is in.
func conflict(vm *v1.VirtualMachine, text string) error {
	return conflictWith(v1.VirtualMachineGroupVersionKind.Kind, "virtualmachines", vm.Namespace, vm.Name, ": "+text)
}

func conflictVMI(vmi *v1.VirtualMachineInstance, text string) error {
	return conflictWith(v1.VirtualMachineInstanceGroupVersionKind.Kind, "virtualmachineinstances", vmi.Namespace,
		vmi.Name, text)
}

func conflictWith(kind, resource, namespace, name, text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusConflict,
		Reason:  metav1.StatusReasonConflict,
		Message: fmt.Sprintf("%s %s/%s%s", kind, namespace, name, text),
		Details: &metav1.StatusDetails{Group: v1.GroupVersion.Group, Kind: resource, Name: name},
	}}
}

func badRequest(text string) error { return apierrors.NewBadRequest(text) }

// notRunning returns 409 for requests that need a running guest.
func notRunning(vmi *v1.VirtualMachineInstance) error {
	phase := vmi.Status.Phase
	if phase == v1.VmPhaseUnset {
		phase = v1.Pending
	}
	return conflictVMI(vmi, fmt.Sprintf(" is not running: phase %s", phase))
}

// notConnectable returns KubeVirt's error for a stream of a guest that does not run.
func notConnectable(vmi *v1.VirtualMachineInstance) error {
	return stream.NewNotRunning(fmt.Sprintf(
		"Unable to connect to VirtualMachineInstance because phase is %s instead of %s", vmi.Status.Phase, v1.Running))
}

// plain makes of an error that wraps an API error one that the API server machinery, which does not
// unwrap, recognises.
func plain(err error) error {
	var status apierrors.APIStatus
	if _, ok := err.(apierrors.APIStatus); ok || !errors.As(err, &status) {
		return err
	}
	out := status.Status()
	out.Message = err.Error()
	return &apierrors.StatusError{ErrStatus: out}
}
