package hotplug

import (
	"errors"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestStuck(t *testing.T) {
	for name, tc := range map[string]struct {
		status v1.VolumeStatus
		want   bool
	}{
		"in the guest":       {v1.VolumeStatus{Phase: v1.VolumeReady, Reason: ReasonAttachFailed}, false},
		"cannot be attached": {v1.VolumeStatus{Phase: v1.HotplugVolumeMounted, Reason: ReasonAttachFailed}, true},
		"no pod yet":         {v1.VolumeStatus{Reason: ReasonMissingAttachmentPod, Message: "none yet"}, false},
		"pod refused": {
			v1.VolumeStatus{Reason: ReasonMissingAttachmentPod, Message: NotCreated("v", errors.New("quota"))}, true,
		},
		"pod starts": {v1.VolumeStatus{Reason: ReasonAttachmentPodNotReady, Message: "Waiting for pod p"}, false},
		"no node takes it": {
			v1.VolumeStatus{Reason: ReasonAttachmentPodNotReady, Message: Unscheduled("p", "affinity")}, true,
		},
		"claim is not filled": {v1.VolumeStatus{Reason: "PVCNotReady", Message: "p cannot be scheduled: x"}, false},
	} {
		tc.status.Name = "v"
		if got := Stuck(&tc.status); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
