package exportcontroller

import (
	"cmp"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// restoredName returns the name of the claim that an export restores from a snapshot's; KubeVirt's.
func restoredName(export, claim string) string {
	return names.Shorten(export+"-"+claim, validation.DNS1123SubdomainMaxLength)
}

// restored returns the claim of a snapshot's volume: as the one that was snapshotted, and at least as large as the
// snapshot asks for. It has none of the labels of that one, by which the VM would know it.
func (v *View) restored(claim *Claim) *corev1.PersistentVolumeClaim {
	source := claim.Backup.PersistentVolumeClaim.DeepCopy()
	group := snapshotsv1.GroupName
	requests := corev1.ResourceList{}
	if size, ok := source.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
		requests[corev1.ResourceStorage] = size
	}
	if least := claim.RestoreSize; least != nil {
		if size := requests[corev1.ResourceStorage]; size.Cmp(*least) < 0 {
			requests[corev1.ResourceStorage] = *least
		}
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Export.Namespace, Name: claim.Volume.Claim,
			Labels:          map[string]string{names.LabelComponent: names.VirtExport},
			OwnerReferences: []metav1.OwnerReference{owner(v.Export)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: source.Spec.AccessModes, VolumeMode: source.Spec.VolumeMode,
			StorageClassName: source.Spec.StorageClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: requests},
			DataSource: &corev1.TypedLocalObjectReference{
				APIGroup: &group, Kind: "VolumeSnapshot", Name: *claim.Backup.VolumeSnapshotName,
			},
		},
	}
}

func owner(export *v1beta1.VirtualMachineExport) metav1.OwnerReference {
	return *metav1.NewControllerRef(export, v1beta1.SchemeGroupVersion.WithKind(exports.Kind))
}

// contentOf returns the kind of content of a claim. A claim with a file system is a disk when a VM uses it as one, an
// image was uploaded to it, or CDI says so.
func contentOf(
	mode *corev1.PersistentVolumeMode, annotations map[string]string, filled bool, isDisk bool,
) exports.Content {
	if claims.IsBlock(mode) {
		return exports.Device
	}
	content, known := annotations[exports.AnnotationContentType]
	uploaded := uploads.StateOf(annotations)
	switch {
	case known && content != "" && content != exports.ContentDisk:
		return exports.Files
	case known, filled, isDisk, uploaded != nil && uploaded.Phase == uploads.Succeeded:
		return exports.Disk
	}
	return exports.Files
}

// isDisk reports whether a VM has a claim as a disk.
func isDisk(spec *v1.VirtualMachineInstanceSpec, claim string) bool {
	for i := range spec.Volumes {
		if volume := &spec.Volumes[i]; claims.Name(volume) == claim && filesystems.Disk(spec, volume) {
			return true
		}
	}
	return false
}

// claimOr returns a claim's volume mode, which for one that is not there yet is the snapshot's.
func claimOr(claim *corev1.PersistentVolumeClaim, backup *snapshotv1beta1.VolumeBackup) *corev1.PersistentVolumeMode {
	if claim != nil {
		return claim.Spec.VolumeMode
	}
	return cmp.Or(backup.PersistentVolumeClaim.Spec.VolumeMode, new(corev1.PersistentVolumeFilesystem))
}
