package sidecars

import (
	"slices"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotfake "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/fake"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/utils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The snapshot controller and csi-snapshotter find in a new content what they would write next.
func TestWholeClient(t *testing.T) {
	client := wholeClient{snapshotfake.NewSimpleClientset()} //nolint:staticcheck // it has no other: no apply configurations
	content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "made"}}
	content.Spec.Source.VolumeHandle = new("volume")
	if _, err := client.SnapshotV1().VolumeSnapshotContents().
		Create(t.Context(), content, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := client.SnapshotV1().VolumeSnapshotContents().Get(t.Context(), "made", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if utils.NeedToAddContentFinalizer(made) ||
		!metav1.HasAnnotation(made.ObjectMeta, utils.AnnVolumeSnapshotBeingCreated) {
		t.Errorf("finalizers %v, annotations %v", made.Finalizers, made.Annotations)
	}
	if slices.Contains(content.Finalizers, utils.VolumeSnapshotContentFinalizer) {
		t.Error("the caller's object is changed")
	}
}
