package podfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestEnsureImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	p, err := openProcess("/proc", os.Getpid())
	check(t, err)
	defer p.Close()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	check(t, os.WriteFile(file("there.img"), []byte("kept"), 0o600))
	check(t, os.Symlink("there.img", file("link.img")))
	check(t, unix.Mkfifo(file("fifo.img"), 0o600))
	check(t, unix.Mknod(file("device.img"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	check(t, os.Symlink(dir, file("var-run"))) // as images have on the way to a volume
	for _, tc := range []struct {
		name string
		size int64
		want string // of the error
		has  int64  // bytes; -1: no file
	}{
		{"there.img", 1 << 30, "", 4},
		{"fifo.img", 0, "not a regular file", 0},
		{"device.img", 0, "not a regular file", -2},
		{"new.img", 3<<20 + 5, "", 3 << 20},
		{"missing.img", 0, "", -1},
		{"tiny.img", 1000, "less than 1Mi", -1},
		{"large.img", 1 << 60, "there is room for", -1},
		{"link.img", 1 << 20, "not a regular file", 4},
		{"fifo.img", 1 << 20, "not a regular file", 0},
	} {
		err := p.EnsureImage(file("var-run"), tc.name, tc.size)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		info, err := os.Stat(file(tc.name))
		switch {
		case tc.has == -1 && err == nil:
			t.Errorf("%s was made", tc.name)
		case tc.has >= 0 && (err != nil || info.Size() != tc.has):
			t.Errorf("%s: %v, %v", tc.name, info, err)
		case tc.has >= 0 && tc.want == "":
			var stat unix.Stat_t
			check(t, unix.Stat(file(tc.name), &stat))
			// The owner is the launcher's user only of what was made for it.
			if made := tc.name == "new.img"; made != (stat.Uid == names.User && stat.Gid == names.Group) {
				t.Errorf("%s is %d:%d's", tc.name, stat.Uid, stat.Gid)
			}
		}
	}
	left, err := filepath.Glob(file(".*.new"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
