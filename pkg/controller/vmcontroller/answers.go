package vmcontroller

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/cdi"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
)

// The functions of this file change the rest of a step, and what the status reports, by what the API server answers to
// a write, and return the events for it.

// keeps reports whether the revision that is there is as the one of its name that was to be made. If not, nothing is
// recorded, and no VMI made, until it is gone.
func (s *Step) keeps(there, wanted *appsv1.ControllerRevision) bool {
	if instancetype.SameRevision(there, wanted) {
		return true
	}
	view := &s.After
	view.Failure = "error encountered while storing instancetype.kubevirt.io controllerRevisions: found existing " +
		"ControllerRevision with unexpected data, " + wanted.Name + "; delete it"
	view.FailureReason = vmicontroller.ReasonFailedCreate
	view.Referred, view.InstancetypeRef, view.PreferenceRef = false, nil, nil
	s.Create, s.DataVolumes = nil, nil
	if s.Decision.Action == Create {
		s.Decision.Action = Keep
	}
	s.RequeueAfter = retryMissing
	s.again()
	return false
}

// madeDataVolume takes the answer to the creation of a DataVolume. That it may not or cannot be made is the Failure.
func (s *Step) madeDataVolume(dv *cdiv1.DataVolume, err error) []vmicontroller.Event {
	view := &s.After
	reason := reasonFailedDataVolume
	switch denied := (*cdi.DeniedError)(nil); {
	case err == nil:
		view.DataVolumes[dv.Name] = dv
		return []vmicontroller.Event{{
			Type: corev1.EventTypeNormal, Reason: reasonCreatedDataVolume, Message: "Created DataVolume " + dv.Name,
		}}
	case apierrors.IsAlreadyExists(err):
		return nil // The cache has not seen it; its event will come.
	case frame.Ending(err):
		return nil // The VM goes with its namespace.
	case errors.As(err, &denied):
		reason = reasonUnauthorized
	}
	view.fail(reason, fmt.Sprintf("DataVolume %q cannot be made: %v", dv.Name, err))
	s.again()
	if hasFailure(view.VM, view.Failure) {
		return nil
	}
	return []vmicontroller.Event{{Type: corev1.EventTypeWarning, Reason: reason, Message: view.Failure}}
}

// madeVMI takes the answer to the creation of the VMI. That it cannot be made is the Failure, and the step's error.
func (s *Step) madeVMI(err error) []vmicontroller.Event {
	view := &s.After
	if err == nil {
		view.VMI = s.Create
		return []vmicontroller.Event{{
			Type: corev1.EventTypeNormal, Reason: vmicontroller.ReasonSuccessfulCreate,
			Message: "Started the virtual machine by creating the new virtual machine instance " + s.Create.Name,
		}}
	}
	s.failed = fmt.Errorf("create VMI: %w", err)
	view.FailureReason, view.Failure = vmicontroller.ReasonFailedCreate, s.failed.Error()
	if hasFailure(view.VM, view.Failure) {
		return nil
	}
	return []vmicontroller.Event{{
		Type: corev1.EventTypeWarning, Reason: vmicontroller.ReasonFailedCreate,
		Message: fmt.Sprintf("Error creating virtual machine instance: %v", err),
	}}
}
