// Package loop attaches files to the kernel's loop devices. Devices are found by their file's inode, never by its
// path: the path that the kernel names may be one of another mount namespace, or gone.
package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Options are the options of a new device.
type Options struct {
	// Autoclear has the kernel detach the device itself when nobody has it open or mounted any more.
	Autoclear bool
	// SectorSize is that of the device, bytes; 0 leaves it to the kernel. That takes 4096 for a file that shares
	// blocks: a clone would be a disk with other sectors than its source, which neither its file system nor its
	// partitions are made for.
	SectorSize uint32
}

// Attach returns a loop device on the file, one that is there already or a new one. The caller keeps others from
// attaching the same file meanwhile: two devices on one file would be two caches of the same data.
//
// The device is returned open, for with Autoclear it would vanish before it is mounted.
func Attach(file string, o Options) (device string, open int, err error) {
	attached, err := Devices(file)
	if err != nil {
		return "", -1, err
	}
	for _, device := range attached {
		open, err := openAttached(device, file)
		if err != nil || open >= 0 {
			return device, open, err
		}
	}
	backing, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", -1, fmt.Errorf("attach a loop device: %w", &fs.PathError{Op: "open", Path: file, Err: err})
	}
	defer unix.Close(backing)
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", -1, fmt.Errorf("attach a loop device: open /dev/loop-control: %w", err)
	}
	defer unix.Close(control)
	for {
		number, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", -1, fmt.Errorf("find a free loop device: %w", err)
		}
		device := fmt.Sprintf("/dev/loop%d", number)
		open, err := configure(device, backing, o)
		if errors.Is(err, unix.EBUSY) {
			continue // somebody else was quicker
		}
		if err != nil {
			return "", -1, fmt.Errorf("attach %s to %s: %w", device, file, err)
		}
		return device, open, nil
	}
}

// openAttached opens a device if it is still attached to the file; if not, it returns -1.
func openAttached(device, file string) (int, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", device, err)
	}
	var st unix.Stat_t
	info, err := unix.IoctlLoopGetStatus64(fd)
	if err == nil {
		err = unix.Stat(file, &st)
	}
	if err == nil && backs(&st, info) {
		return fd, nil
	}
	unix.Close(fd)
	return -1, nil
}

func configure(device string, backing int, o Options) (int, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	config := &unix.LoopConfig{Fd: uint32(backing), Size: o.SectorSize}
	if o.Autoclear {
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	}
	config.Info.Flags |= unix.LO_FLAGS_DIRECT_IO
	err = unix.IoctlLoopConfigure(fd, config)
	if errors.Is(err, unix.EINVAL) { // a file system without direct I/O
		config.Info.Flags &^= unix.LO_FLAGS_DIRECT_IO
		err = unix.IoctlLoopConfigure(fd, config)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Devices lists the loop devices on a file, or on another device.
func Devices(file string) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); errors.Is(err, unix.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", &fs.PathError{Op: "stat", Path: file, Err: err})
	}
	return where(func(info *unix.LoopInfo64) bool { return backs(&st, info) })
}

// backs reports a loop device on a file. A device is known by its number: its node in /dev may have been made anew.
func backs(st *unix.Stat_t, info *unix.LoopInfo64) bool {
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return info.Rdevice == st.Rdev
	}
	return info.Inode == st.Ino && info.Device == st.Dev
}

// DevicesOnFilesystem lists the loop devices on files of the file system that is on a device.
func DevicesOnFilesystem(device string) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return nil, fmt.Errorf("list loop devices: %w", &fs.PathError{Op: "stat", Path: device, Err: err})
	}
	return where(func(info *unix.LoopInfo64) bool { return info.Device == st.Rdev })
}

func where(match func(*unix.LoopInfo64) bool) ([]string, error) {
	attached, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var devices []string
	for _, dir := range attached {
		device := "/dev/" + filepath.Base(filepath.Dir(dir))
		if info, err := status(device); err == nil && match(info) { // one that fails was detached this moment
			devices = append(devices, device)
		}
	}
	return devices, nil
}

func status(device string) (*unix.LoopInfo64, error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return unix.IoctlLoopGetStatus64(fd)
}

// Detach detaches a device from its file, and before it what is stacked on it: kubelets lock a block volume in use by a
// loop device of their own, and a node that was killed leaves that behind.
func Detach(device string) error {
	stacked, err := Devices(device)
	if err != nil {
		return err
	}
	for _, d := range append(stacked, device) {
		if err := clearDevice(d); err != nil {
			return fmt.Errorf("detach %s: %w", d, err)
		}
	}
	return nil
}

func clearDevice(device string) error {
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

// Grow makes a device as large as its file has become, and what is stacked on it.
func Grow(device string) error {
	stacked, err := Devices(device)
	if err != nil {
		return err
	}
	for _, d := range append([]string{device}, stacked...) {
		fd, err := unix.Open(d, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("grow %s: %w", d, err)
		}
		err = unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("grow %s: %w", d, err)
		}
	}
	return nil
}

// Mounted reports whether a file system of the device is mounted, in whatever mount namespace.
func Mounted(device string) (bool, error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", device, err)
	}
	return false, unix.Close(fd)
}

// Flush writes to the file what the kernel holds of a device.
func Flush(device string) error {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("flush %s: %w", device, err)
	}
	defer unix.Close(fd)
	if err := unix.Fsync(fd); err != nil {
		return fmt.Errorf("flush %s: %w", device, err)
	}
	return nil
}
