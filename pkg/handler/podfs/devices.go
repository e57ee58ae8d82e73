package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/handler/podfs/beneath"
	"github.com/virtkit/virtkit/pkg/names"
)

// Device is a device by its kind and number. What a pod has at a path is no way to know one: its processes may have
// made it.
type Device = beneath.Device

// Block and Char are devices of a number.
func Block(number uint64) Device { return Device{Kind: unix.S_IFBLK, Number: number} }

// Char returns a character device of a number.
func Char(number uint64) Device { return Device{Kind: unix.S_IFCHR, Number: number} }

// The number of /dev/net/tun.
const tunMajor, tunMinor = 10, 200

// dev opens the pod's /dev.
func (p *Process) dev() (*beneath.Dir, error) {
	root, err := beneath.Root(p.proc)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dev, err := root.Mount("/dev")
	if err != nil {
		return nil, fmt.Errorf("in the pod: %w", err)
	}
	return dev, nil
}

// inDev opens the pod's /dev for do, which gets the path below it of a device's name.
func (p *Process) inDev(name string, do func(dev *beneath.Dir, below string) error) error {
	below, ok := cutDir(name, "/dev")
	if !ok {
		return fmt.Errorf("%s is not in /dev", name)
	}
	dev, err := p.dev()
	if err != nil {
		return err
	}
	defer dev.Close()
	return do(dev, below)
}

// EnsureTun makes /dev/net/tun in the pod, for every user there. A container's default device rules allow its use.
func (p *Process) EnsureTun() error {
	dev, err := p.dev()
	if err != nil {
		return err
	}
	defer dev.Close()
	dir, err := dev.MakeDir("net", 0o755)
	if err != nil {
		return fmt.Errorf("make /dev/net in the pod: %w", err)
	}
	defer dir.Close()
	tun, err := dir.MakeDevice("tun", Char(unix.Mkdev(tunMajor, tunMinor)), 0o666)
	if err != nil {
		return fmt.Errorf("make /dev/net/tun in the pod: %w", err)
	}
	defer tun.Close()
	// The umask may have taken the rights away.
	if err := tun.Chmod(0o666); err != nil {
		return fmt.Errorf("open /dev/net/tun in the pod to its user: %w", err)
	}
	return nil
}

// GiveDevice gives a device node below the pod's /dev to the launcher's user. It refuses what is not one of the granted
// devices, and what does not lie in the pod's own /dev.
func (p *Process) GiveDevice(name string, granted Devices) error {
	return p.inDev(name, func(dev *beneath.Dir, below string) error { return giveDevice(dev, below, granted) })
}

func giveDevice(dev *beneath.Dir, name string, granted Devices) error {
	node, err := dev.Find(name)
	if err != nil {
		return fmt.Errorf("in the pod's /dev: %w", err)
	}
	defer node.Close()
	device := node.Device()
	switch {
	case device == Device{}:
		return fmt.Errorf("/dev/%s in the pod is not a device", name)
	case !granted.has(device):
		return fmt.Errorf("/dev/%s in the pod is %s, which the kubelet has not granted to it", name, device)
	}
	if err := node.Give(names.User, names.Group); err != nil {
		return fmt.Errorf("give /dev/%s in the pod to the launcher: %w", name, err)
	}
	return nil
}

const (
	// maxEntries bounds how many files of one directory of devices are looked at.
	maxEntries = 4096
	// maxDepth bounds how deep directories of devices are looked into.
	maxDepth = 8
)

// GiveDevices gives all granted character devices in a directory below the pod's /dev, and in those below it, to the
// launcher's user. Others stay as they are. It is no error when there is no such directory.
func (p *Process) GiveDevices(dir string, granted Devices) error {
	return p.inDev(dir, func(dev *beneath.Dir, below string) error {
		return giveDevices(dev, below, granted, maxDepth)
	})
}

func giveDevices(dev *beneath.Dir, name string, granted Devices, depth int) error {
	dir, err := dev.Dir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("in the pod's /dev: %w", err)
	}
	defer dir.Close()
	entries, err := dir.List(maxEntries)
	if err != nil {
		return fmt.Errorf("list /dev/%s in the pod: %w", name, err)
	}
	for _, entry := range entries {
		inside := path.Join(name, entry.Name())
		switch {
		case entry.IsDir() && depth > 0:
			err = giveDevices(dev, inside, granted, depth-1)
		case entry.Type()&fs.ModeCharDevice != 0:
			err = giveIfGranted(dev, inside, granted)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// giveIfGranted does what giveDevice does, for a device that may be another's.
func giveIfGranted(dev *beneath.Dir, name string, granted Devices) error {
	node, err := dev.Find(name)
	if err != nil {
		return fmt.Errorf("in the pod's /dev: %w", err)
	}
	defer node.Close()
	if !granted.has(node.Device()) {
		return nil
	}
	return node.Give(names.User, names.Group)
}

// MakeBlock makes a device node for the launcher's user in the pod's /dev/DIR, which is made too. It may be
// done again.
func (p *Process) MakeBlock(name string, device Device) error {
	return p.inDev(name, func(dev *beneath.Dir, below string) error {
		dir, err := dev.MakeDir(path.Dir(below), 0o755)
		if err != nil {
			return fmt.Errorf("make %s in the pod: %w", name, err)
		}
		defer dir.Close()
		node, err := dir.MakeDevice(path.Base(below), device, 0o600)
		if errors.Is(err, beneath.ErrNotDevice) { // that of a volume which had the name before
			if err = dir.Remove(path.Base(below)); err == nil {
				node, err = dir.MakeDevice(path.Base(below), device, 0o600)
			}
		}
		if err != nil {
			return fmt.Errorf("make %s in the pod: %w", name, err)
		}
		defer node.Close()
		if err := node.Give(names.User, names.Group); err != nil {
			return fmt.Errorf("give %s in the pod to the launcher: %w", name, err)
		}
		return nil
	})
}

// RemoveBlock undoes MakeBlock. It is no error when there is no such device node.
func (p *Process) RemoveBlock(name string) error {
	return p.inDev(name, func(dev *beneath.Dir, below string) error {
		dir, err := dev.Dir(path.Dir(below))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("in the pod's /dev: %w", err)
		}
		defer dir.Close()
		if err := dir.Remove(path.Base(below)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s in the pod: %w", name, err)
		}
		return nil
	})
}

// cutDir returns a path relative to a directory that it is below.
func cutDir(name, dir string) (string, bool) {
	if path.Clean(name) != name || len(name) <= len(dir)+1 || name[:len(dir)+1] != dir+"/" {
		return "", false
	}
	return name[len(dir)+1:], true
}
