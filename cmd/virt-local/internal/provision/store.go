package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Disk is a Store in a directory of the machine:
//
//	<dir>/<volume>       directory of a file system volume
//	<dir>/<volume>.img   content of a block volume
//	<dir>/<volume>.dev   symbolic link to its loop device, whose number changes with every attachment
//	<dir>/.erase         what is about to be erased, and a record of why: <volume>.json
type Disk struct{ Dir string }

// Directory makes a volume's directory. Anyone may write there: hostPath volumes get no fsGroup.
func (d Disk) Directory(volume string) (string, error) {
	path := filepath.Join(d.Dir, volume)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return "", fmt.Errorf("make volume: %w", err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		return "", fmt.Errorf("make volume: %w", err)
	}
	return path, nil
}

// Block makes a volume's file, of size bytes rounded up to a whole page, and its loop device.
func (d Disk) Block(volume string, size int64) (string, error) {
	if err := os.MkdirAll(d.Dir, 0o755); err != nil {
		return "", fmt.Errorf("make volume: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(d.Dir, volume+".img"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("make volume: %w", err)
	}
	defer f.Close()
	size = (size + 4095) &^ 4095
	if st, err := f.Stat(); err != nil || st.Size() < size {
		if err := errors.Join(err, f.Truncate(size)); err != nil {
			return "", fmt.Errorf("make volume: %w", err)
		}
	}
	return d.attach(volume)
}

// attach makes the volume's link lead to a loop device on its file.
func (d Disk) attach(volume string) (string, error) {
	file, link := filepath.Join(d.Dir, volume+".img"), filepath.Join(d.Dir, volume+".dev")
	attached, err := loopsOn(file)
	if err != nil {
		return "", err
	}
	var device string
	if len(attached) > 0 {
		device = attached[0]
	} else if device, err = attachLoop(file); err != nil {
		return "", fmt.Errorf("make loop device for %s: %w", file, err)
	}
	if now, err := os.Readlink(link); err == nil && now == device {
		return link, nil
	}
	temporary := link + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("link volume: %w", err)
	}
	if err := os.Symlink(device, temporary); err != nil {
		return "", fmt.Errorf("link volume: %w", err)
	}
	if err := os.Rename(temporary, link); err != nil {
		return "", fmt.Errorf("link volume: %w", err)
	}
	return link, nil
}

// AttachAll gives every block volume its loop device again, after a reboot.
func (d Disk) AttachAll() error {
	files, err := filepath.Glob(filepath.Join(d.Dir, "*.img"))
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, file := range files {
		if _, err := d.attach(strings.TrimSuffix(filepath.Base(file), ".img")); err != nil {
			return err
		}
	}
	return nil
}

// detach detaches the volume's loop device, and before it those that kubelets have stacked on it: they lock a
// block volume in use by a loop device of their own, and a node that was killed leaves that behind.
func (d Disk) detach(volume string) error {
	devices, err := loopsOn(filepath.Join(d.Dir, volume+".img"))
	if err != nil {
		return err
	}
	for _, device := range devices {
		stacked, err := loopsOn(device)
		if err != nil {
			return err
		}
		for _, dev := range append(stacked, device) {
			if err := detachLoop(dev); err != nil {
				return fmt.Errorf("detach %s: %w", dev, err)
			}
		}
	}
	return nil
}

// DetachAll detaches the loop devices of all volumes, whose nodes must be gone.
func (d Disk) DetachAll() error {
	volumes, err := d.Volumes()
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		if err := d.detach(volume); err != nil {
			return err
		}
	}
	return nil
}

// loopsOn returns the loop devices whose backing file, by inode, is the one at path: paths that the kernel names
// may be of another mount namespace, or gone.
func loopsOn(path string) ([]string, error) {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); errors.Is(err, unix.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", &fs.PathError{Op: "stat", Path: path, Err: err})
	}
	attached, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var devices []string
	for _, dir := range attached {
		device := "/dev/" + filepath.Base(filepath.Dir(dir))
		info, err := loopStatus(device)
		if err == nil && info.Inode == file.Ino && info.Device == file.Dev {
			devices = append(devices, device)
		}
	}
	return devices, nil
}

func loopStatus(device string) (*unix.LoopInfo64, error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return unix.IoctlLoopGetStatus64(fd)
}

func attachLoop(file string) (string, error) {
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open /dev/loop-control: %w", err)
	}
	defer unix.Close(control)
	backing, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(backing)
	for {
		number, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find a free loop device: %w", err)
		}
		device := fmt.Sprintf("/dev/loop%d", number)
		err = configureLoop(device, backing)
		if errors.Is(err, unix.EBUSY) {
			continue // somebody else was quicker
		}
		return device, err
	}
}

func configureLoop(device string, backing int) error {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	config := &unix.LoopConfig{Fd: uint32(backing), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_DIRECT_IO}}
	err = unix.IoctlLoopConfigure(fd, config)
	if errors.Is(err, unix.EINVAL) { // a file system without direct I/O
		config.Info.Flags = 0
		err = unix.IoctlLoopConfigure(fd, config)
	}
	return err
}

func detachLoop(device string) error {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return err
	}
	return nil
}
