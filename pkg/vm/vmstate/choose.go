package vmstate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// Choose returns the claim that has the persistent state of a VM, or of a VMI without a VM, with that name and UID; nil
// when none of claims has it. The claim has the label, is a file system, and no other object owns it: a claim without
// an owner is a user's, restored from a backup for example. The latest to which the state has moved counts, else the
// oldest. A start mounts this claim, a snapshot takes it, and an export serves it.
func Choose(name string, owner types.UID, claims []*corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	candidates := slices.DeleteFunc(slices.Clone(claims), func(claim *corev1.PersistentVolumeClaim) bool {
		others := len(claim.OwnerReferences) > 0 && !Owned(claim, owner)
		return claim.Labels[Prefix] != names.LabelValue(name) ||
			claim.DeletionTimestamp != nil || others ||
			claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
	})
	if len(candidates) == 0 {
		return nil
	}
	return slices.MinFunc(candidates, func(a, b *corev1.PersistentVolumeClaim) int {
		_, aMoved := a.Labels[v1.MigrationNameLabel]
		_, bMoved := b.Labels[v1.MigrationNameLabel]
		age := cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		switch {
		case aMoved && bMoved:
			return -age
		case aMoved:
			return -1
		case bMoved:
			return 1
		}
		return age
	})
}

// Owned reports whether a claim of state belongs to the VM, or to the VMI without one, of a UID.
func Owned(claim *corev1.PersistentVolumeClaim, owner types.UID) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner })
}
