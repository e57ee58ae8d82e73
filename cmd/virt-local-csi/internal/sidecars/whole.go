package sidecars

import (
	"context"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	typed "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/utils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wholeClient has the snapshot controller make VolumeSnapshotContents as they are three writes later: with the
// finalizer that it gives them next, and with the annotation with which csi-snapshotter says that it asks the driver.
// The two patches would get in each other's way while a guest waits.
type wholeClient struct{ snapshotclient.Interface }

// SnapshotV1 implements snapshotclient.Interface.
func (c wholeClient) SnapshotV1() typed.SnapshotV1Interface { return wholeV1{c.Interface.SnapshotV1()} }

type wholeV1 struct{ typed.SnapshotV1Interface }

// VolumeSnapshotContents implements typed.SnapshotV1Interface.
func (c wholeV1) VolumeSnapshotContents() typed.VolumeSnapshotContentInterface {
	return wholeContents{c.SnapshotV1Interface.VolumeSnapshotContents()}
}

type wholeContents struct {
	typed.VolumeSnapshotContentInterface
}

// Create implements typed.VolumeSnapshotContentInterface.
func (c wholeContents) Create(
	ctx context.Context, content *snapshotv1.VolumeSnapshotContent, options metav1.CreateOptions,
) (*snapshotv1.VolumeSnapshotContent, error) {
	content = content.DeepCopy()
	if !slices.Contains(content.Finalizers, utils.VolumeSnapshotContentFinalizer) {
		content.Finalizers = append(content.Finalizers, utils.VolumeSnapshotContentFinalizer)
	}
	if content.Spec.Source.VolumeHandle != nil {
		metav1.SetMetaDataAnnotation(&content.ObjectMeta, utils.AnnVolumeSnapshotBeingCreated, "yes")
	}
	return c.VolumeSnapshotContentInterface.Create(ctx, content, options)
}
