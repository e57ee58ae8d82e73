package volumemigration

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Target says what a claim is to be to which a disk is copied. What is empty is as in the claim that it has.
type Target struct {
	Class  string
	Mode   corev1.PersistentVolumeMode
	Access []corev1.PersistentVolumeAccessMode
}

// By returns the target of a claim with what it leaves open as a StorageClass has it: sets are what claims of the class
// can be, the best first. What the claim has is kept where the class has it, too.
func (t Target) By(from *corev1.PersistentVolumeClaim, sets []cdiv1.ClaimPropertySet) Target {
	as := t
	as.Mode = cmp.Or(t.Mode, modeOf(from))
	if len(t.Access) == 0 {
		as.Access = from.Spec.AccessModes
	}
	if slices.ContainsFunc(sets, func(s cdiv1.ClaimPropertySet) bool { return as.within(s) }) {
		return t
	}
	for _, s := range sets {
		if !t.within(s) {
			continue
		}
		if s.VolumeMode != nil {
			t.Mode = *s.VolumeMode
		}
		if len(t.Access) == 0 {
			t.Access = s.AccessModes
		}
		return t
	}
	return t
}

// within reports whether a class has what a target says.
func (t Target) within(s cdiv1.ClaimPropertySet) bool {
	return (t.Mode == "" || s.VolumeMode == nil || *s.VolumeMode == t.Mode) &&
		!slices.ContainsFunc(t.Access, func(mode corev1.PersistentVolumeAccessMode) bool {
			return !slices.Contains(s.AccessModes, mode)
		})
}

func modeOf(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	if claims.IsBlock(claim.Spec.VolumeMode) {
		return corev1.PersistentVolumeBlock
	}
	return corev1.PersistentVolumeFilesystem
}

// numbered is the end of a claim's name that NewClaim gave it.
var numbered = regexp.MustCompile(`-m\d+$`)

// longest is the most characters of a claim's name without its number: pods and labels have it, too.
const longest = 63 - len("-m999")

// NewClaim returns the claim to which the disk on another is to be copied: of the first name NAME-m1, NAME-m2, … that
// is not taken, and as large as the disk needs. disk is the size of the guest's disk, bytes; 0 when it is not known.
func NewClaim(
	from *corev1.PersistentVolumeClaim, disk int64, to Target, taken func(name string) bool,
) *corev1.PersistentVolumeClaim {
	mode := cmp.Or(to.Mode, modeOf(from))
	out := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, Name: freeName(from.Name, taken)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: from.Spec.AccessModes, VolumeMode: &mode, StorageClassName: from.Spec.StorageClassName,
		},
	}
	if len(to.Access) > 0 {
		out.Spec.AccessModes = to.Access
	}
	if to.Class != "" {
		out.Spec.StorageClassName = &to.Class
	}
	asked := from.Spec.Resources.Requests[corev1.ResourceStorage] // more than it has while it grows
	size := max(room(from), asked.Value(), disk)
	was := from.Spec.StorageClassName
	// On a file system of the same class there is the same room. A disk grows with its claim: were there more, each
	// move would make it larger.
	same := modeOf(from) == mode && (to.Class == "" || was != nil && *was == to.Class)
	if mode == corev1.PersistentVolumeFilesystem && !same && (claims.IsBlock(from.Spec.VolumeMode) || disk > 0) {
		size = max(size, uploads.Room(max(disk, blockSize(from)))) // its file system needs a share
	}
	out.Spec.Resources.Requests = corev1.ResourceList{
		corev1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI),
	}
	return out
}

// blockSize returns the size of a claim that is a device; 0 for another.
func blockSize(claim *corev1.PersistentVolumeClaim) int64 {
	if claims.IsBlock(claim.Spec.VolumeMode) {
		return room(claim)
	}
	return 0
}

func freeName(of string, taken func(name string) bool) string {
	base := names.Shorten(numbered.ReplaceAllString(of, ""), longest)
	for n := 1; ; n++ {
		if name := fmt.Sprintf("%s-m%d", base, n); name != of && !taken(name) {
			return name
		}
	}
}
