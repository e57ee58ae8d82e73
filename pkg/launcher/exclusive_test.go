package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// loopDevice attaches a loop device to a new file.
func loopDevice(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes loop devices")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	for { // another process may be faster
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "first")
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n)))); err != nil {
			t.Fatal(err)
		}
		loop, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(file.Fd()))
		if errors.Is(err, unix.EBUSY) {
			loop.Close()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
				t.Error(err)
			}
			loop.Close()
		})
		return path
	}
}

func TestExclusive(t *testing.T) {
	device := loopDevice(t)
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil {
		t.Fatal(err)
	}
	// Another pod has a node of its own for the same device.
	other := filepath.Join(t.TempDir(), "second")
	if err := unix.Mknod(other, unix.S_IFBLK|0o600, int(stat.Rdev)); err != nil {
		t.Fatal(err)
	}
	var a, b exclusive
	for range 2 {
		if err := a.hold([]string{device}); err != nil {
			t.Fatal(err)
		}
	}
	var locked *hypervisor.LockedError
	if err := b.hold([]string{other}); !errors.As(err, &locked) || locked.Path != other {
		t.Errorf("a second guest: %v", err)
	}
	qemu, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Errorf("QEMU beside it: %v", err)
	}
	qemu.Close()
	if err := a.release(); err != nil {
		t.Error(err)
	}
	if err := b.hold([]string{other}); err != nil {
		t.Errorf("after the first: %v", err)
	}
	if err := b.hold([]string{other, "/no/such/device"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a device that is missing: %v", err)
	}
	if err := b.release(); err != nil {
		t.Error(err)
	}
}

func TestExclusiveDevices(t *testing.T) {
	disk := func(name string, shareable *bool) v1.Disk { return v1.Disk{Name: name, Shareable: shareable} }
	spec := &v1.VirtualMachineInstanceSpec{}
	spec.Domain.Devices.Disks = []v1.Disk{
		disk("b", nil), disk("a", new(false)), disk("shared", new(true)), disk("read-only", nil), disk("file", nil),
		{Name: "reader", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}}},
		{Name: "cdrom", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}},
	}
	got := exclusiveDevices(spec, map[string]domain.Source{
		"a": {Path: "/dev/a", Block: true}, "b": {Path: "/dev/b", Block: true}, "shared": {Path: "/dev/c", Block: true},
		"read-only": {Path: "/dev/d", Block: true, ReadOnly: true}, "file": {Path: "/disk.img"},
		"reader": {Path: "/dev/e", Block: true}, "cdrom": {Path: "/dev/f", Block: true},
	})
	if !slices.Equal(got, []string{"/dev/a", "/dev/b"}) {
		t.Errorf("%q", got)
	}
}
