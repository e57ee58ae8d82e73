package volumemigration

import (
	storagev1 "k8s.io/api/storage/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// OptInAnnotation, "true", has a guest moved with its disks when it is evicted and cannot move without them. It is on
// its VM, on the VM's template, or on the StorageClasses of its disks. virt-controller writes what follows from these
// to the VMI, of which everybody else reads it: OptedIn.
const OptInAnnotation = "virtkit.io/migrate-with-disks"

// OptIn returns what OptInAnnotation is to be on a VM's VMI: the VM's own value, or else that of its template, or else
// "true" where all claims that keep the guest on its node are of StorageClasses that say so, by claim. vmi is nil for
// one that is not made yet.
func OptIn(
	vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, byClass map[string]bool,
) (value string, given bool) {
	if value, given = OwnOptIn(vm); given || vmi == nil {
		return value, given
	}
	for _, claim := range Keeping(vmi) {
		if !byClass[claim] {
			return "", false
		}
		value, given = "true", true
	}
	return value, given
}

// OwnOptIn returns what a VM or its template says.
func OwnOptIn(vm *v1.VirtualMachine) (value string, given bool) {
	if value, given = vm.Annotations[OptInAnnotation]; given || vm.Spec.Template == nil {
		return value, given
	}
	value, given = vm.Spec.Template.ObjectMeta.Annotations[OptInAnnotation]
	return value, given
}

// ClassOptsIn reports a StorageClass, which may be nil, whose claims' guests are moved with their disks.
func ClassOptsIn(class *storagev1.StorageClass) bool {
	return class != nil && class.Annotations[OptInAnnotation] == "true"
}

// Keeping returns the claims that a guest uses and two nodes cannot use at once, also where its disks are just being
// copied to others.
func Keeping(vmi *v1.VirtualMachineInstance) []string {
	var out []string
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		s := statusOf(vmi.Status.VolumeStatus, v.Name)
		if claims.Name(v) == "" || s == nil || s.PersistentVolumeClaimInfo == nil ||
			OnBothNodes(s.PersistentVolumeClaimInfo, claims.Of(v).ReadOnly) {
			continue
		}
		out = append(out, s.PersistentVolumeClaimInfo.ClaimName)
	}
	return out
}

// OptedIn reports a VMI whose guest is moved with its disks when it is evicted.
func OptedIn(vmi *v1.VirtualMachineInstance) bool { return vmi.Annotations[OptInAnnotation] == "true" }

// Takes reports whether a guest that is evicted can leave with its disks, or is leaving so: it has opted in.
func Takes(vmi *v1.VirtualMachineInstance) bool {
	return OptedIn(vmi) && (Pending(vmi) || Bring(vmi).Helps())
}
