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

// errForeignLink is a link that may have been planted.
var errForeignLink = errors.New("it is a link of somebody else's in a directory that others may write to; name another")

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
		in, err := os.Stat(dir)
		if err != nil {
			return "", err
		}
		if foreign(owner(info), os.Geteuid(), owner(in), in.Mode()) {
			return "", &fs.PathError{Op: "follow", Path: at, Err: errForeignLink}
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		at = filepath.Clean(to)
	}
	return "", &fs.PathError{Op: "follow", Path: path, Err: syscall.ELOOP}
}

// foreign reports a link that another user may have planted to choose which of this user's files is written: one in a
// directory that its group or all may write to, which is neither this user's, nor root's, nor that of the directory's
// owner. The system itself refuses others' links in sticky directories that all may write to, and no others.
func foreign(link, user, dir int, mode fs.FileMode) bool {
	const others = 0o022
	return mode&others != 0 && link != user && link != 0 && link != dir
}
