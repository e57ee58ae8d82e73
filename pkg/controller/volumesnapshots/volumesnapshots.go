// Package volumesnapshots is what virt-controller has to do with CSI's snapshots, whose kinds may or may not be in the
// cluster: the snapshot controller's VolumeSnapshot, and the classes that say which driver makes one.
//
//	VirtualMachineSnapshotContent ──► VolumeSnapshot ──snapshot controller, CSI driver──► a snapshot of the volume
package volumesnapshots

import (
	"context"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/controller/optional"
)

// Kind is VolumeSnapshot.
func Kind() optional.Kind {
	return optional.Kind{
		Version: snapshotv1.SchemeGroupVersion, Resource: "volumesnapshots", Object: &snapshotv1.VolumeSnapshot{},
	}
}

// Access reads VolumeSnapshots where there are any.
type Access struct{ *optional.Access }

// Get is a VolumeSnapshot, nil when there is none or the cluster does not know of any.
func (a *Access) Get(ctx context.Context, namespace, name string) (*snapshotv1.VolumeSnapshot, error) {
	snapshot := &snapshotv1.VolumeSnapshot{}
	if found, err := a.Access.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, snapshot); !found {
		return nil, err
	}
	return snapshot, nil
}
