package sidecars

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	informers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions/volumesnapshot/v1"
	listers "github.com/kubernetes-csi/external-snapshotter/client/v8/listers/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// copiedContents is the informer of VolumeSnapshotContents for the snapshot controller, whose lister returns copies.
// The snapshot controller annotates a content whose VolumeSnapshot is deleted in what it has read, and then patches
// it. In the cache that csi-snapshotter reads as well, the object before the patch would have the annotation already:
// csi-snapshotter, which looks only at contents that change, would not remove its finalizer from a content that was
// deleted before its VolumeSnapshot until the next resync.
type copiedContents struct {
	informers.VolumeSnapshotContentInformer
}

// Lister implements informers.VolumeSnapshotContentInformer.
func (c copiedContents) Lister() listers.VolumeSnapshotContentLister {
	return copyingLister{c.VolumeSnapshotContentInformer.Lister()}
}

type copyingLister struct {
	listers.VolumeSnapshotContentLister
}

// List implements listers.VolumeSnapshotContentLister.
func (l copyingLister) List(selector labels.Selector) ([]*snapshotv1.VolumeSnapshotContent, error) {
	list, err := l.VolumeSnapshotContentLister.List(selector)
	for i := range list {
		list[i] = list[i].DeepCopy()
	}
	return list, err
}

// Get implements listers.VolumeSnapshotContentLister.
func (l copyingLister) Get(name string) (*snapshotv1.VolumeSnapshotContent, error) {
	content, err := l.VolumeSnapshotContentLister.Get(name)
	return content.DeepCopy(), err
}
