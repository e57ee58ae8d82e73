package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// exclusive holds the block devices that the guest writes, so that no other guest of the node does. QEMU
// locks files for that, but its locks are on the inode, and each pod has a device node of its own: two
// pods on one device would not notice each other. An exclusive open (O_EXCL, see open(2)) counts for the
// device itself; QEMU's own open is an ordinary one and goes beside it.
type exclusive struct {
	mu   sync.Mutex
	held map[string]*os.File
}

// hold takes the devices that are not held yet, all or none. *hypervisor.LockedError says that one is in
// use by another process.
func (e *exclusive) hold(devices []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := map[string]*os.File{}
	for _, path := range devices {
		if e.held[path] != nil {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
		if err != nil {
			for _, other := range taken {
				err = errors.Join(err, other.Close())
			}
			if errors.Is(err, unix.EBUSY) {
				return &hypervisor.LockedError{Path: path}
			}
			return fmt.Errorf("take the device %s: %w", path, err)
		}
		taken[path] = f
	}
	if e.held == nil {
		e.held = map[string]*os.File{}
	}
	for path, f := range taken {
		e.held[path] = f
	}
	return nil
}

// release lets all go. The end of the process does the same.
func (e *exclusive) release() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var err error
	for _, f := range e.held {
		err = errors.Join(err, f.Close())
	}
	e.held = nil
	return err
}

// drop lets some devices go; those that are not held are no error.
func (e *exclusive) drop(devices []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var err error
	for _, path := range devices {
		if f := e.held[path]; f != nil {
			delete(e.held, path)
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// exclusiveDevices returns the block devices that the guest writes and shares with nobody.
func exclusiveDevices(spec *v1.VirtualMachineInstanceSpec, images map[string]domain.Source) []string {
	var out []string
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		src := images[d.Name]
		readOnly := src.ReadOnly || d.CDRom != nil || d.Disk != nil && d.Disk.ReadOnly
		if src.Block && !readOnly && (d.Shareable == nil || !*d.Shareable) {
			out = append(out, src.Path)
		}
	}
	slices.Sort(out)
	return out
}
