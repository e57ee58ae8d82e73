package vmicontroller

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// The functions of this file change the rest of a step, which is the status and the events, by what the API server
// answers to a write. An error that they return ends the pass, which is tried again.

// podRefused takes the error with which the VMI's pod, or the one before it, was not created.
func (s *Step) podRefused(view View, err error) error {
	if errors.Is(err, ErrRecorded) || apierrors.IsNotFound(err) || frame.Ending(err) {
		return nil // The cache is stale, or the namespace is going, and the VMI with it.
	}
	return s.cannotCreate(view, ReasonFailedCreate, names.MessageCreatePod, err)
}

// stateRefused takes the error with which the claim of the persistent state was not created. there is the claim of that
// name, where one exists and the cache has it.
func (s *Step) stateRefused(view View, there *corev1.PersistentVolumeClaim, err error) error {
	switch {
	case apierrors.IsNotFound(err) || frame.Ending(err):
		return nil // The namespace is going, and the VMI with it.
	case apierrors.IsAlreadyExists(err):
		if there == nil || stateClaim(view.VMI, []*corev1.PersistentVolumeClaim{there}) != nil {
			return nil // The cache had not seen it; its event makes another pass.
		}
		return s.cannotCreate(view, names.ReasonStateClaimTaken, createState, vmstate.TakenError(there.Name))
	}
	return s.cannotCreate(view, ReasonFailedCreate, createState, err)
}

// attached takes the answer to the creation of a hotplugged volume's attachment pod. The status names one that was
// made.
func (s *Step) attached(volume string, pod *corev1.Pod, err error) error {
	status := &s.Status.VolumeStatus[slices.IndexFunc(s.Status.VolumeStatus,
		func(status v1.VolumeStatus) bool { return status.Name == volume })]
	missing := status.Reason == hotplug.ReasonMissingAttachmentPod
	if err != nil {
		message := hotplug.NotCreated(volume, err)
		if status.Message != message {
			s.Events = append(s.Events, Event{corev1.EventTypeWarning, ReasonFailedCreate, message})
		}
		if missing {
			status.Message = message
		}
		return errors.New(message)
	}
	status.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: pod.Name, AttachPodUID: pod.UID}
	if missing {
		status.Reason = hotplug.ReasonAttachmentPodNotReady
		status.Message = fmt.Sprintf(messageWaitingForAttachment, pod.Name)
	}
	s.Events = append(s.Events, Event{
		corev1.EventTypeNormal, ReasonSuccessfulCreate, fmt.Sprintf(attachmentCreated, pod.Name, volume),
	})
	return nil
}

// createState begins the messages about the claim of the persistent state.
const createState = "create the claim of the persistent state: "

// cannotCreate records in the status of a VMI that has no pod yet what cannot be made for it. what begins the message.
func (s *Step) cannotCreate(view View, reason, what string, err error) error {
	message := what + err.Error()
	old := conditions.Find(s.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
	if old == nil || old.Message != message {
		s.Events = append(s.Events, Event{corev1.EventTypeWarning, ReasonFailedCreate, message})
	}
	setPhase(&s.Status, v1.Pending, view.Now)
	conditions.Set(&s.Status.Conditions, notRunning(), view.Now)
	conditions.Set(&s.Status.Conditions, notSynchronized(reason, message), view.Now)
	return fmt.Errorf("%s%w", what, err)
}
