package part

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

const noFollow = 0

// lock locks a byte far behind a file's end until the file is closed: a lock there keeps nobody from reading.
func lock(file *os.File) error {
	err := windows.LockFileEx(windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|
		windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrBusy
	}
	return err
}

func own(fs.FileInfo) bool { return true }

// owner returns what os.Geteuid does: files have no such ID.
func owner(fs.FileInfo) int { return -1 }
