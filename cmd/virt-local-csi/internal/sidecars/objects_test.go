package sidecars

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	snapshotfake "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/fake"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
)

// The CRDs are those of the version that is linked.
func TestCRDs(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/kubernetes-csi/external-snapshotter/client/v8").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)),
		"config/crd/snapshot.storage.k8s.io_*.yaml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := crds.ReadFile("crds/" + filepath.Base(file)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("crds/%s is another: copy %s (%v)", filepath.Base(file), file, err)
		}
	}
	all, err := CRDs()
	if err != nil || len(all) != 3 || all[0].Spec.Group != "snapshot.storage.k8s.io" {
		t.Errorf("%d, %v", len(all), err)
	}
}

// A class of the provisioner before is replaced and keeps its annotations; one of the user's is left alone; what is
// made twice is the same.
func TestClasses(t *testing.T) {
	annotations := map[string]string{defaultClass: "false", "by": "user"}
	old := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: Local, Annotations: annotations}, Provisioner: oldProvisioner,
	}
	before := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver.Name}}
	theirs := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: LocalNode}, Provisioner: "example.org/theirs"}
	//nolint:staticcheck // there is no other: it is generated without apply configurations
	c := clients{kubernetes: fake.NewClientset(old, theirs, before), snapshots: snapshotfake.NewSimpleClientset()}
	for range 2 {
		if err := errors.Join(makeClasses(t.Context(), c), makeSnapshotClass(t.Context(), c)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		Local:      driver.Name,
		LocalNode:  "example.org/theirs",
		LocalPlain: driver.Plain,
	} {
		class, err := c.kubernetes.StorageV1().StorageClasses().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || class.Provisioner != want {
			t.Errorf("%s: %+v, %v", name, class, err)
		}
		if name == Local && !maps.Equal(class.Annotations, annotations) {
			t.Errorf("annotations: %v", class.Annotations)
		}
	}
	drivers, err := c.kubernetes.StorageV1().CSIDrivers().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(drivers.Items) != 2 {
		t.Fatalf("%+v, %v", drivers, err)
	}
	for _, d := range drivers.Items {
		if spec := d.Spec; spec.FSGroupPolicy == nil || *spec.FSGroupPolicy != storagev1.FileFSGroupPolicy ||
			spec.StorageCapacity == nil || *spec.StorageCapacity != (d.Name == driver.Name) {
			t.Errorf("%s, one of them made before: %+v", d.Name, spec)
		}
	}
	if _, err := c.snapshots.SnapshotV1().VolumeSnapshotClasses().Get(t.Context(),
		Local, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
