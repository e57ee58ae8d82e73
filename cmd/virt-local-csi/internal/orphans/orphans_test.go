package orphans

import (
	"slices"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotfake "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/fake"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
)

func volume(name, driverName string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-of-" + name},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: name},
		}},
	}
}

func TestOrphans(t *testing.T) {
	handle := "by-hand"
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "content"},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: driver.Name, VolumeSnapshotRef: corev1.ObjectReference{UID: "uid"},
			Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &handle},
		},
	}
	waiting := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim"}}
	owned, err := findOwners(t.Context(),
		fake.NewClientset(waiting, volume("bound", driver.Plain), volume("foreign", "x")),
		snapshotfake.NewSimpleClientset(content)) //nolint:staticcheck // it has no other: no apply configurations
	if err != nil {
		t.Fatal(err)
	}
	got := without(
		map[string]int64{"bound": 1, "pvc-claim": 1, "foreign": 2, "a": 3},
		map[string]int64{"by-hand": 1, "snapshot-uid": 1, "s": 4}, owned,
	)
	want := []Orphan{{"a", KindVolume, 3}, {"foreign", KindVolume, 2}, {"s", KindSnapshot, 4}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	// Nothing is removed, or the nil pool would be missed.
	if err := Remove(nil, got, []string{"a", "bound"}); err == nil ||
		!strings.Contains(err.Error(), `"bound" is no data`) {
		t.Errorf("%v", err)
	}
}
