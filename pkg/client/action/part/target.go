package part

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxLinks is how many links lead to a file at most.
const maxLinks = 40

// errForeignLink is a link that the system would not follow either.
var errForeignLink = errors.New("it is a link of somebody else's in a directory that all may write to; name another")

// Target returns the path of the file that is written for path: what a symbolic link there leads to, be it there or
// not, so that the link stays when its file is replaced. Errors are those of fs.PathError.
func Target(path string) (string, error) {
	at := filepath.Clean(path)
	for range maxLinks {
		info, err := os.Lstat(at)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return at, nil //nolint:nilerr // who opens it is told what is wrong
		}
		to, err := os.Readlink(at)
		if err != nil {
			return "", err
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(at)) // what ".." in a link leaves
		if err != nil {
			return "", &fs.PathError{Op: "follow", Path: path, Err: err}
		}
		if foreign(dir, info) {
			return "", &fs.PathError{Op: "follow", Path: at, Err: errForeignLink}
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		at = filepath.Clean(to)
	}
	return "", &fs.PathError{Op: "follow", Path: path, Err: syscall.ELOOP}
}

// foreign reports a link of somebody else's in a directory such as /tmp, where anybody may have made it.
func foreign(dir string, link fs.FileInfo) bool {
	const shared = 0o002
	info, err := os.Stat(dir)
	return err == nil && info.Mode()&fs.ModeSticky != 0 && info.Mode()&shared != 0 && !own(link)
}
