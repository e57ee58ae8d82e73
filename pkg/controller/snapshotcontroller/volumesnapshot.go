package snapshotcontroller

import (
	"maps"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// volumeSnapshot returns the VolumeSnapshot of a backup, or why it cannot be made.
func (view *ContentView) volumeSnapshot(backup *v1beta1.VolumeBackup) (*snapshotv1.VolumeSnapshot, string) {
	claim := &backup.PersistentVolumeClaim
	storage := ""
	if claim.Spec.StorageClassName != nil {
		storage = *claim.Spec.StorageClassName
	}
	class, reason := view.Classes.For(storage, backup.VolumeName)
	if class == "" {
		return nil, reason
	}
	vm := view.Content.Spec.Source.VirtualMachine
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: view.Content.Namespace, Name: *backup.VolumeSnapshotName,
			Labels: map[string]string{
				snapshots.LabelSourceName:      names.LabelValue(vm.Name),
				snapshots.LabelSourceNamespace: view.Content.Namespace,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(view.Content, ContentKind)},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim.Name},
			VolumeSnapshotClassName: &class,
		},
	}, ""
}

// ContentKind is the kind that owns VolumeSnapshots.
var ContentKind = v1beta1.SchemeGroupVersion.WithKind("VirtualMachineSnapshotContent")

// made returns the VolumeSnapshots that exist, by name.
func (view *ContentView) made() []*snapshotv1.VolumeSnapshot {
	return slices.SortedFunc(maps.Values(view.VolumeSnapshots),
		func(a, b *snapshotv1.VolumeSnapshot) int { return strings.Compare(a.Name, b.Name) })
}

// statuses returns the status of each VolumeSnapshot that exists.
func (view *ContentView) statuses() []v1beta1.VolumeSnapshotStatus {
	var out []v1beta1.VolumeSnapshotStatus
	for _, backup := range view.Content.Spec.VolumeBackups {
		if backup.VolumeSnapshotName == nil || view.VolumeSnapshots[*backup.VolumeSnapshotName] == nil {
			continue
		}
		status := statusOf(view.VolumeSnapshots[*backup.VolumeSnapshotName])
		if taken, ok := view.Taken[status.VolumeSnapshotName]; ok && status.CreationTime == nil {
			status.CreationTime = &taken
		}
		out = append(out, status)
	}
	return out
}

func statusOf(snapshot *snapshotv1.VolumeSnapshot) v1beta1.VolumeSnapshotStatus {
	out := v1beta1.VolumeSnapshotStatus{VolumeSnapshotName: snapshot.Name}
	if status := snapshot.Status; status != nil {
		out.ReadyToUse, out.CreationTime = status.ReadyToUse, status.CreationTime
		if status.Error != nil {
			out.Error = &v1beta1.Error{Time: status.Error.Time, Message: status.Error.Message}
		}
	}
	return out
}

// madeEvent returns the event of a VolumeSnapshot.
func madeEvent(snapshot *snapshotv1.VolumeSnapshot) Event {
	return Event{
		corev1.EventTypeNormal, ReasonVolumeSnapshotCreated,
		"Successfully created VolumeSnapshot " + snapshot.Name,
	}
}
