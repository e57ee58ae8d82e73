package vmicontroller

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// volumeStatus returns the status of the volumes that the guest starts with.
func volumeStatus(vmi *v1.VirtualMachineInstance, known map[string]*corev1.PersistentVolumeClaim) []v1.VolumeStatus {
	var out []v1.VolumeStatus
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		if hotplug.Is(volume) {
			continue // said when it is plugged in
		}
		status := v1.VolumeStatus{Name: volume.Name}
		if name := claims.Name(volume); name != "" {
			status.PersistentVolumeClaimInfo = claimInfo(known[name])
		}
		out = append(out, status)
	}
	if vmstate.Needed(&vmi.Spec) {
		if claim := stateClaimIn(vmi, known); claim != nil {
			out = append(out, v1.VolumeStatus{Name: claim.Name, PersistentVolumeClaimInfo: claimInfo(claim)})
		}
	}
	return out
}

// claimInfo returns what virt-handler and the launcher want to know about a claim; nil for one that does not exist.
func claimInfo(claim *corev1.PersistentVolumeClaim) *v1.PersistentVolumeClaimInfo {
	if claim == nil {
		return nil
	}
	return volumemigration.Info(claim)
}
