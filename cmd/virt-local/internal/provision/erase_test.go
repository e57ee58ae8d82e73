package provision

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

// run provisions from a directory, for a cluster that has what etcd gives back.
func run(t *testing.T, dir string, objects ...runtime.Object) kubernetes.Interface {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset(append(objects, StorageClass())...)
	done := make(chan error)
	go func() { done <- Run(ctx, client, Disk{Dir: dir}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client
}

// settled waits until the provisioner has begun to work: it has given a claim its volume, which it does after all that
// it does at its start.
func settled(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	claim := newClaim("settled", Name, corev1.PersistentVolumeFilesystem)
	if _, err := client.CoreV1().PersistentVolumeClaims("ns").Create(t.Context(),
		claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the provisioner works", func() bool { return !gone(t, client, "pvc-settled-uid") })
}

func gone(t *testing.T, client kubernetes.Interface, volume string) bool {
	t.Helper()
	_, err := client.CoreV1().PersistentVolumes().Get(t.Context(), volume, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err != nil
}

// precious makes the data of a volume and returns its path.
func precious(t *testing.T, dir, volume string) string {
	t.Helper()
	path := filepath.Join(dir, volume, "disk.img")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func kept(t *testing.T, path string) {
	t.Helper()
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("the data is gone: %v", err)
	}
}

func newVolume(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy,
) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-fs-uid", UID: "volume-uid", Annotations: map[string]string{annotationProvisionedBy: Name},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: policy, StorageClassName: Class,
			ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "fs", UID: "fs-uid"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: phase},
	}
}

// etcd is empty, or was restored to before the volume was made, or the volume of a claim that was to be retained was
// deleted by hand: the data is kept, and listed.
func TestDataWithoutVolumeIsKept(t *testing.T) {
	dir := t.TempDir()
	data := precious(t, dir, "pvc-fs-uid")
	client := run(t, dir)
	settled(t, client)
	kept(t, data)
	disk := Disk{Dir: dir}
	names, err := Unowned(t.Context(), client, disk)
	if err != nil || !slices.Equal(names, []string{"pvc-fs-uid"}) {
		t.Errorf("unowned: %v, %v", names, err)
	}
	got, err := disk.Describe("pvc-fs-uid")
	if err != nil || got.Path != filepath.Dir(data) || got.Bytes == 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRetainedDataIsKept(t *testing.T) {
	dir := t.TempDir()
	data := precious(t, dir, "pvc-fs-uid")
	client := run(t, dir, newVolume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain))
	settled(t, client)
	kept(t, data)
	if names, err := Unowned(t.Context(), client, Disk{Dir: dir}); err != nil || len(names) != 0 {
		t.Errorf("unowned: %v, %v", names, err)
	}
}

// A volume counts as released although the API server has its claim: something is wrong, and nothing is erased.
func TestDataOfClaimThatExistsIsKept(t *testing.T) {
	dir := t.TempDir()
	data := precious(t, dir, "pvc-fs-uid")
	claim := newClaim("fs", Name, corev1.PersistentVolumeFilesystem)
	claim.Spec.VolumeName = "pvc-fs-uid"
	client := run(t, dir, newVolume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete), claim)
	settled(t, client)
	kept(t, data)
}

// The provisioner was killed after it had set data aside.
func TestErasureAfterKill(t *testing.T) {
	aside := func(t *testing.T) (dir, data string) {
		t.Helper()
		dir = t.TempDir()
		data = precious(t, dir, "pvc-fs-uid")
		if err := (Disk{Dir: dir}).SetAside("pvc-fs-uid", Record{Volume: "pvc-fs-uid"}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(data); err == nil {
			t.Fatal("it is not set aside")
		}
		return dir, data
	}
	empty := func(t *testing.T, dir string) {
		t.Helper()
		eventually(t, "nothing is left", func() bool {
			entries, err := os.ReadDir(filepath.Join(dir, ".erase"))
			if err != nil {
				t.Fatal(err)
			}
			return len(entries) == 0
		})
	}
	t.Run("it goes on", func(t *testing.T) {
		dir, _ := aside(t)
		client := run(t, dir, newVolume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete))
		eventually(t, "the volume is gone", func() bool { return gone(t, client, "pvc-fs-uid") })
		empty(t, dir)
	})
	t.Run("half erased, it goes on", func(t *testing.T) {
		dir, _ := aside(t)
		at := filepath.Join(dir, ".erase", "pvc-fs-uid")
		if err := os.Rename(at, at+".erasing"); err != nil {
			t.Fatal(err)
		}
		client := run(t, dir, newVolume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete))
		eventually(t, "the volume is gone", func() bool { return gone(t, client, "pvc-fs-uid") })
		empty(t, dir)
	})
	t.Run("etcd was restored to before the claim was deleted", func(t *testing.T) {
		dir, data := aside(t)
		claim := newClaim("fs", Name, corev1.PersistentVolumeFilesystem)
		claim.Spec.VolumeName = "pvc-fs-uid"
		run(t, dir, newVolume(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete), claim)
		empty(t, dir)
		kept(t, data)
	})
	t.Run("etcd was restored to before the volume was made", func(t *testing.T) {
		dir, data := aside(t)
		client := run(t, dir, newClaim("fs", Name, corev1.PersistentVolumeFilesystem))
		eventually(t, "it has a volume", func() bool { return !gone(t, client, "pvc-fs-uid") })
		kept(t, data)
	})
	t.Run("etcd is empty", func(t *testing.T) {
		dir, _ := aside(t)
		client := run(t, dir)
		settled(t, client)
		kept(t, filepath.Join(dir, ".erase", "pvc-fs-uid", "disk.img"))
		disk := Disk{Dir: dir}
		if names, err := Unowned(t.Context(), client, disk); err != nil ||
			!slices.Equal(names, []string{"pvc-fs-uid"}) {
			t.Errorf("unowned: %v, %v", names, err)
		}
		got, err := disk.Describe("pvc-fs-uid")
		if err != nil || got.Bytes == 0 || !strings.HasSuffix(got.Path, "/.erase/pvc-fs-uid") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Classes are another provisioner's since: what was made before goes with its claim, and nothing is made.
func TestEraseOld(t *testing.T) {
	dir := t.TempDir()
	data := precious(t, dir, "pvc-fs-uid")
	waiting := newClaim("waiting", Name, corev1.PersistentVolumeFilesystem)
	client := fake.NewClientset(newVolume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete), waiting,
		StorageClass())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- EraseOld(ctx, client, Disk{Dir: dir}) }()
	eventually(t, "the volume is gone", func() bool { return gone(t, client, "pvc-fs-uid") })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("its data is left: %v", err)
	}
	if !gone(t, client, "pvc-waiting-uid") {
		t.Error("a volume was made")
	}
}

// A volume that does not say which claim it was for is not erased.
func TestDataOfUnknownClaimIsKept(t *testing.T) {
	volume := newVolume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)
	volume.Spec.ClaimRef.UID = types.UID("")
	dir := t.TempDir()
	data := precious(t, dir, "pvc-fs-uid")
	settled(t, run(t, dir, volume))
	kept(t, data)
}
