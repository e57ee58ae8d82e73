package kubeconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

type owner struct{ uid, gid int }

// ownerFor keeps a file's owner, and gives a new file to the owner of the nearest directory above it:
// with `sudo --preserve-env=KUBECONFIG` or --kubeconfig the file is then the user's, not root's.
func ownerFor(path string, existed bool) (owner, error) {
	if !existed {
		path = filepath.Dir(path)
	}
	for {
		st, err := os.Stat(path)
		if err == nil {
			sys, ok := st.Sys().(*syscall.Stat_t)
			if !ok {
				return owner{}, fmt.Errorf("no owner known for %s", path)
			}
			return owner{int(sys.Uid), int(sys.Gid)}, nil
		}
		if !os.IsNotExist(err) || path == filepath.Dir(path) {
			return owner{}, fmt.Errorf("find the owner of the kubeconfig: %w", err)
		}
		path = filepath.Dir(path)
	}
}

// mkdirOwned makes a directory and its parents for the owner; it names the one that failed.
func mkdirOwned(dir string, to owner) (string, error) {
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if failed, err := mkdirOwned(filepath.Dir(dir), to); err != nil {
		return failed, err
	}
	if err := os.Mkdir(dir, 0o750); err != nil {
		return dir, err
	}
	return dir, os.Chown(dir, to.uid, to.gid)
}
