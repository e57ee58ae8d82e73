package csi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// A pool without reflinks is said to be one; not one on an XFS of its own, nor a cluster without the driver.
func TestLimits(t *testing.T) {
	var on unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &on); err != nil || on.Type != unix.TMPFS_MAGIC {
		t.Skip("there is no tmpfs at /dev/shm, which has no reflinks")
	}
	t.Setenv("TMPDIR", "/dev/shm")
	dir := t.TempDir()
	in := &instance.Instance{StateDir: dir, Storage: instance.CSI}
	says := func(of *instance.Instance) bool {
		t.Helper()
		said, err := Limits(of)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(said, "without reflinks")
	}
	if says(in) {
		t.Error("before there is a pool")
	}
	if err := os.MkdirAll(filepath.Join(dir, "csi", "pool"), 0o700); err != nil {
		t.Fatal(err)
	}
	if says(in) {
		t.Error("a pool that is being made")
	}
	if err := os.MkdirAll(filepath.Join(dir, "csi", "pool", "volumes"), 0o700); err != nil {
		t.Fatal(err)
	}
	if !says(in) {
		t.Error("a pool on a tmpfs: nothing is said")
	}
	if says(&instance.Instance{StateDir: dir, Storage: instance.HostPath}) {
		t.Error("a cluster without the driver")
	}
	if err := os.WriteFile(filepath.Join(dir, "csi", "pool.img"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if says(in) {
		t.Error("an XFS of its own")
	}
}
