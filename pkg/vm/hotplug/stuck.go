package hotplug

import (
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// Reasons in the status of a volume whose attachment pod is not there, or does not run yet; KubeVirt's words.
const (
	ReasonMissingAttachmentPod  = "MissingAttachmentPod"
	ReasonAttachmentPodNotReady = "AttachmentPodNotReady"
)

// ReasonDetachFailed is the reason of a volume that the guest does not let go of.
const ReasonDetachFailed = "VolumeDetachFailed"

const unscheduled = " cannot be scheduled: "

// Unscheduled returns the message of a volume whose attachment pod no node takes, for the scheduler's reason.
func Unscheduled(pod, why string) string { return "attachment pod " + pod + unscheduled + why }

// NotCreated returns the message of a volume whose attachment pod is refused.
func NotCreated(volume string, err error) string {
	return fmt.Sprintf("%s%v", notCreated(volume), err)
}

func notCreated(volume string) string { return "create attachment pod of volume " + volume + ": " }

// Stuck reports a volume that does not get into the guest, or out of it, by time alone, which its status's message
// explains.
func Stuck(status *v1.VolumeStatus) bool {
	if status.Phase == v1.VolumeReady {
		return false
	}
	switch status.Reason {
	case ReasonAttachFailed, ReasonDetachFailed:
		return true
	case ReasonMissingAttachmentPod:
		return strings.HasPrefix(status.Message, notCreated(status.Name))
	case ReasonAttachmentPodNotReady:
		return strings.Contains(status.Message, unscheduled)
	}
	return false
}
