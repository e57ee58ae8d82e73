package csi

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
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
		said := Limits(of)
		if said != "" && !strings.Contains(said, "without reflinks") {
			t.Error(said)
		}
		return said != ""
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

// A pool that cannot be asked, as when its file system was remounted read-only, is said to be so, and is no failure.
func TestLimitsOfAPoolThatCannotBeAsked(t *testing.T) {
	dir := t.TempDir()
	pool := filepath.Join(dir, "csi", "pool")
	if err := os.MkdirAll(pool, 0o700); err != nil {
		t.Fatal(err)
	}
	said := make(chan string)
	go func() {
		defer close(said)
		runtime.LockOSThread() // the thread, and with it the mount, ends with the goroutine
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		if err != nil {
			return
		}
		err = errors.Join(
			unix.Mount("tmpfs", pool, "tmpfs", 0, "size=64k"),
			os.Mkdir(filepath.Join(pool, "volumes"), 0o700),
			unix.Mount("", pool, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""),
		)
		if err != nil {
			t.Error(err)
			return
		}
		said <- Limits(&instance.Instance{StateDir: dir, Storage: instance.CSI})
	}()
	got, mounted := <-said
	if !mounted {
		t.Skip("mounting needs root")
	}
	if !strings.Contains(got, "could not be asked for reflinks: ") || !strings.Contains(got, "read-only file system") {
		t.Errorf("%q", got)
	}
}
