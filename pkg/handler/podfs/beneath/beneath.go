// Package beneath works on files in directories that others may write: a pod's root, its volumes, a directory of the
// node that a guest's image lies in. Somebody may put a link, a FIFO or a device where a file is expected, and change
// it between two calls.
//
// So nothing is done by path. A name is resolved once, beneath a descriptor, through no link and into no other mount,
// to a descriptor that opens nothing (O_PATH); its kind is looked at, and the rest is done by that descriptor.
//
//	Dir ── Find ──► Node ── Regular ──► *os.File
//	 │               └───── Give, Chmod: of devices and sockets only
//	 ├── MakeDir, MakeDevice, MakeFile, Remove: of one name
//	 └── Dir, Mount ──► Dir
//
// tests/arch holds that packages which reach into pods open, make, change and remove files by this one only.
package beneath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors of what is not as it was expected.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrNotDevice  = errors.New("not the device that was expected")
	errName       = errors.New("not the name of one file")
)

// resolve are the flags with which names are resolved.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Dir is a directory that others may write.
type Dir struct{ f *os.File } // O_PATH

// Open opens a directory by a path of which each element is the node's own: links in it are followed.
func Open(path string) (*Dir, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// Root opens the root directory of a process, whose directory of procfs is given.
func Root(process *os.File) (*Dir, error) {
	fd, err := unix.Openat(int(process.Fd()), "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open the root of", Path: process.Name(), Err: err}
	}
	return &Dir{os.NewFile(uintptr(fd), "/")}, nil
}

// Close releases the directory.
func (d *Dir) Close() { _ = d.f.Close() }

// open resolves a path beneath the directory.
func (d *Dir) open(path string, flags, how uint64) (*os.File, error) {
	name := strings.TrimPrefix(path, "/")
	if name == "" {
		name = "."
	}
	fd, err := unix.Openat2(int(d.f.Fd()), name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: how})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Dir opens a directory on the same mount.
func (d *Dir) Dir(path string) (*Dir, error) {
	f, err := d.open(path, unix.O_PATH|unix.O_DIRECTORY, resolve|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// Mount opens a directory that may be on another mount, as a container's /dev and its volumes are.
func (d *Dir) Mount(path string) (*Dir, error) {
	f, err := d.open(path, unix.O_PATH|unix.O_DIRECTORY, resolve)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// MountLinked does what Mount does, and follows links in the path, as far as they lead beneath the directory: images
// have some on the way to a volume (/var/run), and nobody can write them. It follows none within the volume.
func (d *Dir) MountLinked(path string) (*Dir, error) {
	f, err := d.open(path, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// List reads a directory of at most most entries, which may be gone or others by the time they are looked at.
func (d *Dir) List(most int) ([]fs.DirEntry, error) {
	f, err := d.open(".", unix.O_RDONLY|unix.O_DIRECTORY, resolve|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []fs.DirEntry
	for {
		some, err := f.ReadDir(min(most+1-len(all), 256))
		all = append(all, some...)
		switch {
		case len(all) > most:
			return nil, fmt.Errorf("%s has more than %d entries", d.f.Name(), most)
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
	}
}

// Find finds what is at a path on the same mount, whatever it is. A link is found itself.
func (d *Dir) Find(path string) (*Node, error) {
	return d.find(path, resolve|unix.RESOLVE_NO_XDEV)
}

// FindMounted does what Find does, on whatever mount.
func (d *Dir) FindMounted(path string) (*Node, error) { return d.find(path, resolve) }

// FindLinked does what FindMounted does, and follows links in the path, as far as they lead beneath the directory: a
// process's root is the root of absolute ones. It is for files that are only read.
func (d *Dir) FindLinked(path string) (*Reading, error) {
	f, err := d.open(path, unix.O_PATH, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, err
	}
	n, err := newNode(f)
	if err != nil {
		return nil, err
	}
	return &Reading{n}, nil
}

func (d *Dir) find(path string, how uint64) (*Node, error) {
	f, err := d.open(path, unix.O_PATH|unix.O_NOFOLLOW, how) // see openat2(2) about a link at the end
	if err != nil {
		return nil, err
	}
	return newNode(f)
}

// one makes sure that a name names an entry of the directory itself.
func one(op, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return &fs.PathError{Op: op, Path: name, Err: errName}
	}
	return nil
}

// MakeDir makes a directory, unless it is there, and opens it.
func (d *Dir) MakeDir(name string, mode uint32) (*Dir, error) {
	if err := one("make directory", name); err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(int(d.f.Fd()), name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &fs.PathError{Op: "make directory", Path: name, Err: err}
	}
	return d.Dir(name)
}

// MakeDevice makes a device node, unless it is there, and finds it. It fails with ErrNotDevice when something else has
// the name.
func (d *Dir) MakeDevice(name string, device Device, mode uint32) (*Node, error) {
	if err := one("make device", name); err != nil {
		return nil, err
	}
	err := unix.Mknodat(int(d.f.Fd()), name, device.Kind|mode, int(device.Number))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &fs.PathError{Op: "make device", Path: name, Err: err}
	}
	n, err := d.Find(name)
	if err != nil {
		return nil, err
	}
	if n.Device() != device {
		n.Close()
		return nil, &fs.PathError{Op: "make device", Path: name, Err: ErrNotDevice}
	}
	return n, nil
}

// Remove removes anything but a directory; a link, not what it leads to.
func (d *Dir) Remove(name string) error {
	if err := one("remove", name); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(d.f.Fd()), name, 0); err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// RemoveDir removes a directory, which must be empty.
func (d *Dir) RemoveDir(name string) error {
	if err := one("remove", name); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(d.f.Fd()), name, unix.AT_REMOVEDIR); err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// Fd returns the directory's descriptor, for mounts on it and copies of what is mounted there.
func (d *Dir) Fd() int { return int(d.f.Fd()) }

// Free returns how many bytes may still be written to the directory's file system.
func (d *Dir) Free() (int64, error) {
	var room unix.Statfs_t
	if err := unix.Fstatfs(int(d.f.Fd()), &room); err != nil {
		return 0, &fs.PathError{Op: "look for room in", Path: d.f.Name(), Err: err}
	}
	return int64(room.Bavail) * room.Bsize, nil
}

// Path returns a path of a name in the directory, for bind(2), which follows no link in the last element and makes
// nothing that exists already. It is valid as long as the directory is open.
func (d *Dir) Path(name string) (string, error) {
	if err := one("make socket", name); err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.f.Fd(), name), nil
}
