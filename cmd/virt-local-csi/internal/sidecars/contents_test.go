package sidecars

import (
	"context"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotfake "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/fake"
	snapshotinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/utils"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
)

// The snapshot controller annotates a content whose VolumeSnapshot is deleted, and leaves the cache as it is until the
// API server has said so: csi-snapshotter is to see the change.
func TestSnapshotControllerLeavesTheCache(t *testing.T) {
	snapshot, content := deletedPair()
	class := &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: Local}, Driver: driver.Name}
	client := snapshotfake.NewSimpleClientset(snapshot, content, class) //nolint:staticcheck // it has no other
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if action.(clienttesting.WatchActionImpl).ListOptions.SendInitialEvents == nil {
			return false, nil, nil
		}
		return true, nil, apierrors.NewBadRequest("a fake sends no initial events")
	})
	factory := snapshotinformers.NewSharedInformerFactory(client, resync)
	cached := factory.Snapshot().V1().VolumeSnapshotContents().Lister()
	patched := make(chan map[string]string, 1)
	client.PrependReactor("patch", "volumesnapshotcontents",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			seen, err := cached.Get(content.Name)
			if err == nil {
				select {
				case patched <- seen.Annotations:
				default: // the first is enough
				}
			}
			return false, nil, err
		})
	c := clients{fake.NewClientset(claimOf(snapshot)), client, factory}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.snapshotController(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	}()
	select {
	case annotations := <-patched:
		if _, found := annotations[utils.AnnVolumeSnapshotBeingDeleted]; found {
			t.Errorf("the cache has annotations %v before the API server has them", annotations)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the content is not annotated")
	}
}

// deletedPair returns a VolumeSnapshot and its content, which are deleted and have finalizers.
func deletedPair() (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	now := metav1.Now()
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "s", UID: "uid", ResourceVersion: "1", DeletionTimestamp: &now,
			Finalizers: []string{utils.VolumeSnapshotAsSourceFinalizer},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: new(Local),
			Source:                  snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: new("c")},
		},
		Status: &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: new("c"), ReadyToUse: new(true)},
	}
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Name: "c", ResourceVersion: "1", DeletionTimestamp: &now, Annotations: map[string]string{"made": "by hand"},
			Finalizers: []string{utils.VolumeSnapshotContentFinalizer},
		},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: driver.Name, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain,
			Source:            snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: new("handle")},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: "s", UID: "uid"},
		},
		Status: &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: new("handle"), ReadyToUse: new(true)},
	}
	return snapshot, content
}

// claimOf returns a claim that waits for a volume of the snapshot, which is kept until the claim has one: the content
// is annotated only by who looks at contents.
func claimOf(snapshot *snapshotv1.VolumeSnapshot) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: snapshot.Namespace, Name: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{
			APIGroup: new(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: snapshot.Name,
		}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}
