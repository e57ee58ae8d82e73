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

// userfault is the kernel's name for the device, and the name of its use.
const userfault = "userfaultfd"

// ErrNoUserfault says that the node's kernel has no userfaultfd.
var ErrNoUserfault = errors.New("the node's kernel has no /dev/userfaultfd (CONFIG_USERFAULTFD, Linux 6.1)")

// EnsureUserfault makes /dev/userfaultfd in the pod, for the launcher's user alone: with post-copy QEMU answers the
// faults of memory that has not come yet, for which the system call is not open to the pod.
func (p *Process) EnsureUserfault(rights *Rights) error {
	text, err := os.ReadFile(filepath.Join(rights.Proc, "misc"))
	if err != nil {
		return fmt.Errorf("read the node's devices: %w", err)
	}
	minor, ok := miscMinor(string(text), userfault)
	if !ok {
		return ErrNoUserfault
	}
	dev, err := p.dev()
	if err != nil {
		return err
	}
	defer dev.Close()
	device := Char(unix.Mkdev(miscMajor, minor))
	node, err := dev.MakeDevice(userfault, device, 0o600)
	if err != nil {
		return fmt.Errorf("make /dev/userfaultfd in the pod: %w", err)
	}
	defer node.Close()
	if err := node.Give(names.User, names.Group); err != nil {
		return fmt.Errorf("give /dev/userfaultfd in the pod to the launcher: %w", err)
	}
	return rights.Allow(p, userfault, device)
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
