// Package claims says which PersistentVolumeClaim a volume of a VM uses. A DataVolume is the claim of its name, once
// CDI (the Containerized Data Importer) has filled it; an ephemeral volume is a claim that is only read; everything
// that mounts, opens or judges a claim asks here, so that both kinds of volume are treated alike. It also reports CDI's
// progress with filling one (datavolume.go), lists the other objects that volumes name (references.go), and says which
// volumes are made of them (configuration.go), which pods use a claim (pod.go), and which VMs, VMIs and
// pods use the claims of a namespace (users.go). It is pure.
package claims

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// DefaultClassAnnotation, "true", is on the StorageClass of claims that name none.
const DefaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// IsBlock reports a claim that is a block device; one whose mode nobody has said is a file system.
func IsBlock(mode *corev1.PersistentVolumeMode) bool {
	return mode != nil && *mode == corev1.PersistentVolumeBlock
}

// Terminating is the status of a claim that is being deleted.
const Terminating = "Terminating"

// Status returns the status of a claim in kubectl's words: its phase, or Terminating. A claim that is being deleted
// stays bound as long as a pod uses it, cannot be kept, and no other pod that uses it is scheduled any more.
func Status(claim *corev1.PersistentVolumeClaim) string {
	if claim.DeletionTimestamp != nil {
		return Terminating
	}
	return string(claim.Status.Phase)
}

// Of returns the claim behind a volume; nil for a volume without one. The returned value is a copy.
func Of(volume *v1.Volume) *v1.PersistentVolumeClaimVolumeSource {
	switch {
	case volume.PersistentVolumeClaim != nil:
		source := *volume.PersistentVolumeClaim
		return &source
	case volume.Ephemeral != nil && volume.Ephemeral.PersistentVolumeClaim != nil:
		// What the guest writes goes elsewhere.
		source := &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: *volume.Ephemeral.PersistentVolumeClaim,
		}
		source.ReadOnly = true
		return source
	case volume.MemoryDump != nil:
		source := volume.MemoryDump.PersistentVolumeClaimVolumeSource
		return &source
	case volume.DataVolume != nil:
		return &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: volume.DataVolume.Name,
			},
			Hotpluggable: volume.DataVolume.Hotpluggable,
		}
	}
	return nil
}

// Name returns the name of the claim behind a volume, or "" for a volume without one.
func Name(volume *v1.Volume) string {
	if source := Of(volume); source != nil {
		return source.ClaimName
	}
	return ""
}

// Storage reports a volume of a claim that is the VM's own storage, which the guest may write and a snapshot has: not
// one that it only reads, nor the claim of a memory dump.
func Storage(volume *v1.Volume) bool {
	return volume.PersistentVolumeClaim != nil || volume.DataVolume != nil
}
