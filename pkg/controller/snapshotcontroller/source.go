package snapshotcontroller

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// originals are the objects from which a content is made.
type originals struct {
	// vm is the VM as the content has it. It names the ControllerRevisions of the VM.
	vm        *v1beta1.VirtualMachine
	revisions []*appsv1.ControllerRevision
	// claims are those that can be snapshotted, in the order of their volumes.
	claims []*corev1.PersistentVolumeClaim
}

// newContent returns what the snapshot has of its VM: the spec and the claims that can be snapshotted. When the guest
// is to be frozen it has a record of that from the beginning: a write of its own would come while the guest waits.
func newContent(view View, of originals) (*v1beta1.VirtualMachineSnapshotContent, error) {
	snapshot, vm := view.Snapshot, of.vm.DeepCopy()
	instancetype.RenameRevisions(&vm.Spec, func(name string) string { return copyName(name, snapshot) })
	content := &v1beta1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: snapshot.Namespace, Name: snapshots.ContentName(snapshot),
			Finalizers: []string{snapshots.ContentFinalizer},
		},
		Spec: v1beta1.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: &snapshot.Name, Source: v1beta1.SourceSpec{VirtualMachine: vm},
		},
	}
	claims := of.claims
	for _, volume := range view.Volumes {
		if volume.Reason != "" {
			continue
		}
		claim := claims[0]
		claims = claims[1:]
		backup := v1beta1.VolumeBackup{
			VolumeName: volume.Name,
			PersistentVolumeClaim: v1beta1.PersistentVolumeClaim{
				ObjectMeta: *claim.ObjectMeta.DeepCopy(), Spec: *claim.Spec.DeepCopy(),
			},
			VolumeSnapshotName: new(snapshots.VolumeSnapshotName(snapshot.UID, volume.Name)),
		}
		backup.PersistentVolumeClaim.ManagedFields = nil
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, backup)
	}
	if snapshots.WantsMemory(snapshot) {
		metav1.SetMetaDataAnnotation(&content.ObjectMeta, savedmemory.IncludeAnnotation, "true")
		return content, nil
	}
	if guestOf(view.VMI) != GuestRunning || len(of.claims) == 0 {
		return content, nil
	}
	freeze := ContentStep{Record: newRecord(snapshot, view.VMI.UID, view.Now)}
	annotations, err := freeze.annotations(content)
	content.Annotations = annotations
	return content, err
}

// sourceOf returns what a content has of the VM. A guest that runs has the spec that it was started with, of revision
// (nil when that is not there), and the volumes that it has now.
func sourceOf(
	vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, revision *appsv1.ControllerRevision,
) (*v1beta1.VirtualMachine, error) {
	out := &v1beta1.VirtualMachine{ObjectMeta: *vm.ObjectMeta.DeepCopy(), Spec: *vm.Spec.DeepCopy()}
	out.ManagedFields = nil
	if revision != nil {
		var started struct {
			Spec v1.VirtualMachineSpec `json:"spec"`
		}
		if err := json.Unmarshal(revision.Data.Raw, &started); err != nil {
			return nil, fmt.Errorf("read ControllerRevision %s: %w", revision.Name, err)
		}
		if started.Spec.Template != nil && vm.Spec.Template != nil {
			now := vm.Spec.DeepCopy()
			out.Spec = started.Spec
			out.Spec.DataVolumeTemplates = now.DataVolumeTemplates
			out.Spec.Template.Spec.Volumes = now.Template.Spec.Volumes
			out.Spec.Template.Spec.Domain.Devices.Disks = now.Template.Spec.Domain.Devices.Disks
		}
	}
	if out.Spec.Template != nil {
		snapshots.WithPlugged(&out.Spec.Template.Spec, vm, vmi)
	}
	if m, ref := out.Spec.Instancetype, vm.Status.InstancetypeRef; m != nil && m.RevisionName == "" {
		m.RevisionName = revisionOf(ref)
	}
	if m, ref := out.Spec.Preference, vm.Status.PreferenceRef; m != nil && m.RevisionName == "" {
		m.RevisionName = revisionOf(ref)
	}
	return out, nil
}

func revisionOf(ref *v1.InstancetypeStatusRef) string {
	if ref == nil || ref.ControllerRevisionRef == nil {
		return ""
	}
	return ref.ControllerRevisionRef.Name
}

// copyOf returns the snapshot's own copy of what its VM's instance type or preference was. It goes with the snapshot.
func copyOf(revision *appsv1.ControllerRevision, snapshot *v1beta1.VirtualMachineSnapshot) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       snapshot.Namespace,
			Name:            copyName(revision.Name, snapshot),
			Labels:          revision.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(snapshot, SnapshotKind)},
		},
		Data: revision.Data, Revision: revision.Revision,
	}
}

// copyName returns the name of a snapshot's copy of a ControllerRevision of its VM.
func copyName(revision string, snapshot *v1beta1.VirtualMachineSnapshot) string {
	return snapshots.RevisionName(revision, snapshot.Spec.Source.Name, snapshot.Name)
}

// SnapshotKind is the kind that owns copies of ControllerRevisions.
var SnapshotKind = v1beta1.SchemeGroupVersion.WithKind("VirtualMachineSnapshot")
