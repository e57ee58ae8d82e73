package beneath

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// MakeFile makes a sparse regular file of a size, of an owner and with permissions, all of which it has before it gets
// its name. When somebody else was first, theirs stays as it is, and the error is fs.ErrExist.
func (d *Dir) MakeFile(name string, size int64, user, group int, mode uint32) error {
	if err := one("make", name); err != nil {
		return err
	}
	dir := int(d.f.Fd())
	temporary := "." + rand.Text() + ".new" // another node may share the directory and make the same file
	fd, err := unix.Openat(dir, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &fs.PathError{Op: "make", Path: name, Err: err}
	}
	err = errors.Join(unix.Ftruncate(fd, size), unix.Fchown(fd, user, group), unix.Fchmod(fd, mode))
	if err == nil {
		// By its descriptor: its name may be another file's by now.
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), dir, name, unix.AT_SYMLINK_FOLLOW)
	}
	if err = errors.Join(err, unix.Close(fd), unix.Unlinkat(dir, temporary, 0)); err != nil {
		return &fs.PathError{Op: "make", Path: name, Err: err}
	}
	return nil
}
