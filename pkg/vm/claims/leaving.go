package claims

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// Leaving returns the statuses of hotplugged volumes that are no longer in a VMI's spec, and that the guest or its pod
// still has: their claims are in use until then.
func Leaving(vmi *v1.VirtualMachineInstance) (out []*v1.VolumeStatus) {
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		named := func(v v1.Volume) bool { return v.Name == s.Name }
		if s.HotplugVolume != nil && (s.Phase == v1.HotplugVolumeDetaching || s.Phase == v1.HotplugVolumeUnMounted) &&
			!slices.ContainsFunc(vmi.Spec.Volumes, named) {
			out = append(out, s)
		}
	}
	return out
}

// OfStatus returns the claim of a volume by its status; empty where it says none.
func OfStatus(s *v1.VolumeStatus) string {
	if s.PersistentVolumeClaimInfo == nil {
		return ""
	}
	return s.PersistentVolumeClaimInfo.ClaimName
}
