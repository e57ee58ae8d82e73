package vmexportcmd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/export"
)

// A disk that is full ends a download, and leaves what another run goes on with: all that has come if there is room for
// a note of it, else what the note before is of.
func TestFullDisk(t *testing.T) {
	const first = 100_000
	for name, exact := range map[string]bool{"amid a part": false, "at the end of a part": true} {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("no file system can be mounted: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		path := filepath.Join(dir, "disk")
		r := begin(t, path, "root")
		now := time.Unix(1e9, 0)
		r.now = func() time.Time { return now }
		if err := r.Begin(); err != nil {
			t.Fatal(err)
		}
		mark := func() {
			point := export.Point{Format: v1beta1.KubeVirtRaw, Tag: `"t"`, Done: r.size, Size: 9 << 20}
			if err := r.Mark(point); err != nil {
				t.Fatal(err)
			}
		}
		write := func(n int) error {
			_, err := r.Write(bytes.Repeat([]byte("x"), n))
			return err
		}
		if err := write(first); err != nil {
			t.Fatal(err)
		}
		mark() // is noted
		if err := write(first); err != nil {
			t.Fatal(err)
		}
		mark() // is not
		err := write(2 << 20)
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("%s: %v", name, err)
		}
		want := int64(2 * first)
		if exact {
			mark()
			want = first
		}
		if err := r.end(err); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(strings.Join(r.said, " "), "the same command goes on there") {
			t.Errorf("%s: said %q", name, r.said)
		}
		second := begin(t, path, "root")
		point, _, err := second.resume(t.Context())
		if err != nil || point == nil || point.Done != want {
			t.Errorf("%s: goes on at %+v, said %q: %v", name, point, second.said, err)
		}
		if info, err := os.Stat(filepath.Join(dir, ".disk.part")); err != nil || info.Size() != want {
			t.Errorf("%s: %+v: %v", name, info, err)
		}
		if _, err := os.Stat(filepath.Join(dir, ".disk.part.json.new")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: half a note is left: %v", name, err)
		}
		second.killed()
	}
}
