// Package volumesnapshots reads and makes CSI's snapshots, whose kinds a cluster may lack: the snapshot controller's
// VolumeSnapshot, and the classes that say which driver makes one.
//
//	VirtualMachineSnapshotContent ──► VolumeSnapshot ──snapshot controller, CSI driver──► a snapshot of the volume
package volumesnapshots

import (
	"context"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/controller/optional"
)

// Kind returns the kind VolumeSnapshot.
func Kind() optional.Kind {
	return optional.Kind{
		Version: snapshotv1.SchemeGroupVersion, Resource: "volumesnapshots", Object: &snapshotv1.VolumeSnapshot{},
	}
}

// Access reads VolumeSnapshots where there are any.
type Access struct{ *optional.Access }

// Get returns a VolumeSnapshot, nil when there is none or the cluster does not know of any.
func (a *Access) Get(ctx context.Context, namespace, name string) (*snapshotv1.VolumeSnapshot, error) {
	snapshot := &snapshotv1.VolumeSnapshot{}
	if found, err := a.Access.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, snapshot); !found {
		return nil, err
	}
	return snapshot, nil
}

// BoundKind returns the kind VolumeSnapshotContent.
func BoundKind() optional.Kind {
	return optional.Kind{
		Version: snapshotv1.SchemeGroupVersion, Resource: "volumesnapshotcontents",
		Object: &snapshotv1.VolumeSnapshotContent{},
	}
}

// Bound reads the VolumeSnapshotContents of VolumeSnapshots. The driver's sidecar writes into them that it has
// snapshotted a volume, some writes before the snapshot controller says it in the VolumeSnapshot.
type Bound struct{ *optional.Access }

// Taken returns when the volume of a VolumeSnapshot was snapshotted, if that is known and the VolumeSnapshot does not
// say it.
func (b *Bound) Taken(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot) (*metav1.Time, error) {
	status := snapshot.Status
	if status != nil && status.CreationTime != nil {
		return nil, nil
	}
	// The snapshot controller's name for what it makes; the VolumeSnapshot names it a moment later.
	name := "snapcontent-" + string(snapshot.UID)
	if status != nil && status.BoundVolumeSnapshotContentName != nil {
		name = *status.BoundVolumeSnapshotContentName
	}
	bound := &snapshotv1.VolumeSnapshotContent{}
	found, err := b.Get(ctx, types.NamespacedName{Name: name}, bound)
	if !found || err != nil {
		return nil, err
	}
	return takenBy(bound, snapshot), nil
}

// takenBy returns when a VolumeSnapshotContent was taken for a VolumeSnapshot, nil when it was not, or for another one.
func takenBy(bound *snapshotv1.VolumeSnapshotContent, snapshot *snapshotv1.VolumeSnapshot) *metav1.Time {
	switch {
	case bound.Spec.VolumeSnapshotRef.UID != snapshot.UID || bound.Spec.Source.VolumeHandle == nil:
		return nil
	case bound.Status == nil || bound.Status.SnapshotHandle == nil || bound.Status.CreationTime == nil:
		return nil
	}
	return new(metav1.NewTime(time.Unix(0, *bound.Status.CreationTime)))
}
