package podfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/handler/podfs/beneath"
)

// A link at /dev/net/tun does not open a file of the node to everybody.
func TestEnsureTunFollowsNoLink(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "shadow")
	check(t, os.WriteFile(outside, nil, 0o600))
	for what, plant := range map[string]func(net string) error{
		"link":      func(net string) error { return os.Symlink(outside, filepath.Join(net, "tun")) },
		"hard link": func(net string) error { return os.Link(outside, filepath.Join(net, "tun")) },
		"other device": func(net string) error {
			return unix.Mknod(filepath.Join(net, "tun"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1)))
		},
		"block device": func(net string) error {
			return unix.Mknod(filepath.Join(net, "tun"), unix.S_IFBLK|0o600, int(unix.Mkdev(10, 200)))
		},
		"FIFO":      func(net string) error { return unix.Mkfifo(filepath.Join(net, "tun"), 0o600) },
		"directory": func(net string) error { return os.Mkdir(filepath.Join(net, "tun"), 0o700) },
		"its directory": func(net string) error {
			return errors.Join(os.Remove(net), os.Symlink(filepath.Dir(outside), net))
		},
	} {
		p, root := fakeProcess(t)
		net := filepath.Join(root, "dev/net")
		check(t, os.Mkdir(net, 0o755))
		check(t, plant(net))
		if err := p.EnsureTun(); err == nil {
			t.Errorf("%s was taken for the device", what)
		}
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(net, "tun"), &stat); err == nil && stat.Mode&0o777 == 0o666 {
			t.Errorf("%s has mode %o", what, stat.Mode)
		}
		check(t, unix.Stat(outside, &stat))
		if stat.Mode != unix.S_IFREG|0o600 {
			t.Errorf("%s: the file of the node has mode %o", what, stat.Mode)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(outside))
	if err != nil || len(entries) != 1 {
		t.Errorf("something was made where a link leads to: %v, %v", entries, err)
	}
}

// Nothing is opened but regular files: a FIFO would hold virt-handler up for ever, and a device may do something when
// it is opened.
func TestIrregularFilesAreNotOpened(t *testing.T) {
	p, root := fakeProcess(t)
	pods, run := volume(t)
	conf, log := filepath.Join(root, "etc/resolv.conf"), filepath.Join(RunPath(pods, pod), "log")
	for what, plant := range map[string]func(string) error{
		"FIFO":   func(name string) error { return unix.Mkfifo(name, 0o666) },
		"device": func(name string) error { return unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(240, 0))) },
	} {
		check(t, plant(conf))
		check(t, plant(log))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := p.Resolv(); !errors.Is(err, beneath.ErrNotRegular) {
				t.Errorf("resolv.conf is a %s: %v", what, err)
			}
			if _, err := run.Read("log", 100); !errors.Is(err, beneath.ErrNotRegular) {
				t.Errorf("a log is a %s: %v", what, err)
			}
			if _, err := run.Tail("log", 100); !errors.Is(err, beneath.ErrNotRegular) {
				t.Errorf("the end of a log is a %s: %v", what, err)
			}
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("held up by a %s", what)
		}
		check(t, os.Remove(conf))
		check(t, os.Remove(log))
	}
}

// A directory of devices without end ends.
func TestGiveDevicesIsBounded(t *testing.T) {
	p, root := fakeProcess(t)
	deep := filepath.Join(root, "dev/vfio", strings.Repeat("d/", maxDepth+2))
	check(t, os.MkdirAll(deep, 0o755))
	check(t, unix.Mknod(filepath.Join(deep, "zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	check(t, p.GiveDevices("/dev/vfio", Devices{Char(unix.Mkdev(1, 5)): everyAccess}))
	var stat unix.Stat_t
	check(t, unix.Stat(filepath.Join(deep, "zero"), &stat))
	if stat.Uid != 0 {
		t.Error("looked into without end")
	}
}
