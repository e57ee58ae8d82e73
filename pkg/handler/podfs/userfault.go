package podfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

// miscMajor is the major number of the kernel's miscellaneous devices.
const miscMajor = 10

// ErrNoUserfault says that the node's kernel has no userfaultfd.
var ErrNoUserfault = errors.New("the node's kernel has no /dev/userfaultfd (CONFIG_USERFAULTFD, Linux 6.1)")

// EnsureUserfault makes /dev/userfaultfd in the pod, for the launcher's user alone: with post-copy QEMU answers the
// faults of memory that has not come yet, for which the system call is not open to the pod. proc is as in AllowBlock.
func (p *Process) EnsureUserfault(proc string) error {
	text, err := os.ReadFile(filepath.Join(proc, "misc"))
	if err != nil {
		return fmt.Errorf("read the node's devices: %w", err)
	}
	minor, ok := miscMinor(string(text), "userfaultfd")
	if !ok {
		return ErrNoUserfault
	}
	dir, err := p.inRoot("/dev", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	device := unix.Mkdev(miscMajor, minor)
	if err := unix.Mknodat(int(dir.Fd()), "userfaultfd", unix.S_IFCHR|0o600, int(device)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make /dev/userfaultfd in the pod: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), "userfaultfd", &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("stat /dev/userfaultfd in the pod: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != device {
		return errors.New("/dev/userfaultfd in the pod is not the device that was expected")
	}
	if err := unix.Fchownat(int(dir.Fd()), "userfaultfd", names.User, names.Group, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("give /dev/userfaultfd in the pod to the launcher: %w", err)
	}
	return p.allow(proc, 'c', device, true)
}

// miscMinor finds a device's number in /proc/misc.
func miscMinor(text, name string) (uint32, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == name {
			minor, err := strconv.ParseUint(f[0], 10, 32)
			return uint32(minor), err == nil
		}
	}
	return 0, false
}
