package vmstate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// Claim returns the claim that has the state of a VMI, as its status says; nil before its pod has a node. It is no
// volume of the spec's: the status names it beside those.
func Claim(vmi *v1.VirtualMachineInstance) *v1.PersistentVolumeClaimInfo {
	if !Needed(&vmi.Spec) {
		return nil
	}
	for _, s := range vmi.Status.VolumeStatus {
		inSpec := func(v v1.Volume) bool { return v.Name == s.Name }
		if s.PersistentVolumeClaimInfo != nil && s.HotplugVolume == nil &&
			!slices.ContainsFunc(vmi.Spec.Volumes, inSpec) {
			return s.PersistentVolumeClaimInfo
		}
	}
	return nil
}

// Shared reports whether two nodes can use a claim at once, so that the guest keeps it when it moves.
func Shared(claim *v1.PersistentVolumeClaimInfo) bool {
	return slices.Contains(claim.AccessModes, corev1.ReadWriteMany)
}

// Moved returns the claims from and to which the state goes with the VMI's last migration, or "" when it stays where it
// is.
func Moved(status *v1.VirtualMachineInstanceStatus) (source, target string) {
	ms := status.MigrationState
	if ms == nil || ms.TargetPersistentStatePVCName == ms.SourcePersistentStatePVCName {
		return "", ""
	}
	return ms.SourcePersistentStatePVCName, ms.TargetPersistentStatePVCName
}

// Unsettled reports whether the guest has moved to a pod with another claim, and its state is not known to be there
// yet: the status names the old one.
func Unsettled(status *v1.VirtualMachineInstanceStatus) bool {
	source, target := Moved(status)
	return target != "" && migrations.AtTarget(status) && named(status, source) >= 0
}

// Settle has the status name the claim to which the state has moved, in place of the one from which it came.
func Settle(status *v1.VirtualMachineInstanceStatus) {
	source, target := Moved(status)
	at := named(status, source)
	if target == "" || at < 0 {
		return
	}
	status.VolumeStatus = slices.Clone(status.VolumeStatus)
	info := status.VolumeStatus[at].PersistentVolumeClaimInfo.DeepCopy()
	info.ClaimName = target
	status.VolumeStatus[at].Name, status.VolumeStatus[at].PersistentVolumeClaimInfo = target, info
}

// named returns the index of the status's entry for a claim's name, or less than 0.
func named(status *v1.VirtualMachineInstanceStatus, claim string) int {
	return slices.IndexFunc(status.VolumeStatus, func(s v1.VolumeStatus) bool {
		return s.Name == claim && s.PersistentVolumeClaimInfo != nil && s.PersistentVolumeClaimInfo.ClaimName == claim
	})
}
