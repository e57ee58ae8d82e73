package uploader

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// tiny is a file system with few bytes, for root alone.
func tiny(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A claim that others fill while its image comes, or is converted, is said to be full, and keeps nothing of the image.
func TestFullClaim(t *testing.T) {
	noise := make([]byte, 6<<20)
	_, _ = rand.Read(noise) // never fails
	text := bytes.Repeat([]byte("a disk of text, which is much smaller as qcow2. "), 6<<20/48)
	for name, image := range map[string][]byte{
		"raw":            noise,
		"raw.gz":         gzipped(t, noise),
		"staged qcow2":   converted(t, noise, "-O", "qcow2"),
		"unpacked qcow2": converted(t, text, "-c", "-O", "qcow2"),
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, image)
			o.Directory = tiny(t, 16<<20)
			r := start(t, o)
			r.waitFor(func(s uploads.State) bool { return s.Phase == uploads.Receiving }) // it has measured the claim
			other := filepath.Join(o.Directory, "other")
			check(t, os.WriteFile(other, make([]byte, 13<<20), 0o600))
			state := r.send(image)
			if state.Phase != uploads.Failed || state.Message != errFull.Error() {
				t.Errorf("%+v", state)
			}
			entries, err := os.ReadDir(o.Directory)
			if err != nil || len(entries) != 1 || entries[0].Name() != "other" {
				t.Errorf("left on the claim: %v, %v", entries, err)
			}
		})
	}
}

// A quota that is used up is a full claim, too, whoever meets it.
func TestFullQuota(t *testing.T) {
	for _, code := range []unix.Errno{unix.ENOSPC, unix.EDQUOT} {
		if got := sentence(fmt.Errorf("write: %w", &os.PathError{Op: "write", Err: code})); got != errFull.Error() {
			t.Errorf("%v: %s", code, got)
		}
	}
	for said, want := range map[string]bool{
		"qemu-img: error while writing at byte 0: No space left on device": true,
		"qemu-img: error while writing at byte 0: Disk quota exceeded":     true,
		"qemu-img: error while reading at byte 0: Input/output error":      false,
	} {
		err := Options{}.why(context.Background(), errors.New("exit status 1"), said, "qemu-img cannot")
		if errors.Is(err, errFull) != want {
			t.Errorf("%s: %v", said, err)
		}
	}
}
