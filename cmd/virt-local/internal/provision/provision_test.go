package provision

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// memory is a Store that keeps only names.
type memory struct {
	mu      sync.Mutex
	volumes []string
	aside   map[string]Record
}

func (m *memory) add(volume string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.volumes, volume) {
		m.volumes = append(m.volumes, volume)
	}
}

func (m *memory) Directory(volume string) (string, error) { m.add(volume); return "/v/" + volume, nil }

func (m *memory) Block(volume string, size int64) (string, error) {
	if size != 50<<20 {
		return "", errors.New("wrong size")
	}
	m.add(volume)
	return "/v/" + volume + ".dev", nil
}

func (m *memory) SetAside(volume string, record Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.aside = map[string]Record{volume: record}
	return nil
}

func (m *memory) IsAside(volume string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, aside := m.aside[volume]
	return aside, nil
}

func (m *memory) PutBack(volume string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.aside, volume)
	return nil
}

func (m *memory) Erase(volume string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, aside := m.aside[volume]; !aside {
		return errors.New("it was not set aside")
	}
	delete(m.aside, volume)
	m.volumes = slices.DeleteFunc(m.volumes, func(v string) bool { return v == volume })
	return nil
}

func (m *memory) Volumes() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.volumes), nil
}

func newClaim(name, provisioner string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	class := Class
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name + "-uid"),
			Annotations: map[string]string{annotationProvisioner: provisioner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeMode: &mode,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("50Mi")},
			},
		},
	}
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !check() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	selecting := newClaim("selecting", Name, corev1.PersistentVolumeFilesystem)
	selecting.Spec.Selector = new(metav1.LabelSelector)
	client := fake.NewClientset(
		StorageClass(),
		newClaim("fs", Name, corev1.PersistentVolumeFilesystem), newClaim("block", Name, corev1.PersistentVolumeBlock),
		newClaim("other", "example.org/other", corev1.PersistentVolumeFilesystem), selecting,
	)
	store := &memory{volumes: []string{"pvc-gone-uid", "pvc-fs-uid", "by-hand"}}
	done := make(chan error)
	go func() { done <- Run(ctx, client, store) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	volume := func(name string) *corev1.PersistentVolume {
		v, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if err != nil {
			return nil
		}
		return v
	}
	eventually(t, "both claims have a volume", func() bool {
		return volume("pvc-fs-uid") != nil && volume("pvc-block-uid") != nil
	})
	fs, block := volume("pvc-fs-uid"), volume("pvc-block-uid")
	if fs.Spec.HostPath == nil || fs.Spec.HostPath.Path != "/v/pvc-fs-uid" || fs.Spec.ClaimRef.Name != "fs" ||
		fs.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		fs.Spec.AccessModes[0] != corev1.ReadWriteMany {
		t.Errorf("file system volume %+v", fs.Spec)
	}
	if block.Spec.Local == nil || block.Spec.Local.Path != "/v/pvc-block-uid.dev" ||
		*block.Spec.VolumeMode != corev1.PersistentVolumeBlock || block.Spec.NodeAffinity == nil {
		t.Errorf("block volume %+v", block.Spec)
	}
	eventually(t, "the refused claim has an event", func() bool {
		events, err := client.CoreV1().Events("ns").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == "selecting" && e.Reason == "ProvisioningFailed"
		})
	})
	if volume("pvc-other-uid") != nil || volume("pvc-selecting-uid") != nil {
		t.Error("made a volume for another provisioner, or for a selector")
	}
	if names, err := store.Volumes(); err != nil || !slices.Contains(names, "pvc-gone-uid") ||
		!slices.Contains(names, "by-hand") {
		t.Errorf("orphans: %v, %v", names, err)
	}

	// The claim goes; Kubernetes marks the volume as released.
	if err := client.CoreV1().PersistentVolumeClaims("ns").Delete(ctx, "fs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	fs.Status.Phase = corev1.VolumeReleased
	if _, err := client.CoreV1().PersistentVolumes().UpdateStatus(ctx, fs, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the released volume is gone", func() bool { return volume("pvc-fs-uid") == nil })
	if names, err := store.Volumes(); err != nil || slices.Contains(names, "pvc-fs-uid") {
		t.Errorf("its data is left: %v, %v", names, err)
	}
}

func TestDiskDirectory(t *testing.T) {
	d := Disk{Dir: t.TempDir() + "/volumes"}
	if names, err := d.Volumes(); err != nil || len(names) != 0 {
		t.Errorf("before any: %v, %v", names, err)
	}
	path, err := d.Directory("pvc-1")
	if err != nil || path != d.Dir+"/pvc-1" {
		t.Fatalf("%q, %v", path, err)
	}
	if names, err := d.Volumes(); err != nil || !slices.Equal(names, []string{"pvc-1"}) {
		t.Errorf("%v, %v", names, err)
	}
	for range 2 {
		if err := errors.Join(d.SetAside("pvc-1", Record{}), d.Erase("pvc-1")); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := d.Volumes(); err != nil || len(names) != 0 {
		t.Errorf("after removal: %v, %v", names, err)
	}
}
