//go:build integration

package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

// A snapshot of a volume that is mounted, and a clone of it, can be mounted beside it, with file systems as large as
// they are; what was written before is in them, and their sectors are their source's.
func TestClonesOfMountedVolume(t *testing.T) {
	p := openPool(t)
	if !p.Reflinks {
		t.Fatal("this test needs XFS or a temporary directory with reflinks")
	}
	for _, fsType := range []string{"xfs", "ext4"} {
		t.Run(fsType, func(t *testing.T) {
			id, size := fsType, pool.RoundUp(64<<20, fsType)
			if _, err := p.Create(t.Context(), pool.Volume{Name: id, Size: size, FSType: fsType}); err != nil {
				t.Fatal(err)
			}
			source := stage(t, p, id)
			if err := os.WriteFile(filepath.Join(source, "file"), []byte("before"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := p.TakeSnapshot(t.Context(), id+"-s", id); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(source, "file"), []byte("after"), 0o600); err != nil {
				t.Fatal(err)
			}
			restored := pool.Volume{
				Name: id + "-r", Size: 2 * size, FSType: fsType, Source: pool.Source{Snapshot: id + "-s"},
			}
			if _, err := p.Create(t.Context(), restored); err != nil {
				t.Fatal(err)
			}
			path := stage(t, p, restored.Name)
			if text, err := os.ReadFile(filepath.Join(path, "file")); err != nil || string(text) != "before" {
				t.Errorf("%q, %v", text, err)
			}
			if err := os.WriteFile(filepath.Join(path, "more"), make([]byte, size), 0o600); err != nil {
				t.Errorf("its file system is not as large as it is: %v", err)
			}
			if text, err := os.ReadFile(filepath.Join(source, "file")); err != nil || string(text) != "after" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// stage mounts a volume as NodeStageVolume does, until the test ends.
func stage(t *testing.T, p *pool.Pool, id string) string {
	t.Helper()
	v, device, err := p.Attach(id, "node1")
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	if err := p.Resize(id, device, ""); err != nil {
		t.Fatal(err)
	}
	if err := pool.Mount(device, path, v.FSType, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmount(path); err != nil {
			t.Error(err)
		}
	})
	if err := p.Resize(id, device, path); err != nil {
		t.Fatal(err)
	}
	return path
}
