//go:build unix

package part

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// noFollow refuses a link at the file's name.
const noFollow = unix.O_NOFOLLOW

// lock locks a file until it is closed. A file system that has no locks is no error.
func lock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrBusy
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, unix.ENOLCK):
			return nil
		default:
			return err
		}
	}
}

// own reports whether a file is this user's, and has one name.
func own(info fs.FileInfo) bool { return owner(info) == os.Geteuid() }

// owner returns the ID of a file's user; -1 where the file has other names: who gave it this one is not known then.
func owner(info fs.FileInfo) int {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() && stat.Nlink != 1 {
		return -1
	}
	return int(stat.Uid)
}
