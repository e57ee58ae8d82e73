package vmistatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A file system of a claim keeps the guest on its node as a disk of it does; nothing of either is copied.
func TestFilesystemsMove(t *testing.T) {
	for access, obstacles := range map[corev1.PersistentVolumeAccessMode]int{
		corev1.ReadWriteMany: 0,
		corev1.ReadWriteOnce: 1,
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{
			{Name: "data", Virtiofs: &v1.FilesystemVirtiofs{}}, {Name: "config", Virtiofs: &v1.FilesystemVirtiofs{}},
		}
		vmi.Spec.Volumes = []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
			{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{
			{
				Name: "data",
				PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
					AccessModes: []corev1.PersistentVolumeAccessMode{access},
				},
			},
		}
		if found := diskObstacles(vmi); len(found) != obstacles {
			t.Errorf("%s: %+v", access, found)
		}
		if obstacles == 0 && migrationMethod(vmi) != v1.LiveMigration {
			t.Errorf("%s: %s", access, migrationMethod(vmi))
		}
	}
}
