package guest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/client/action/part"
)

// newFile is the mode, before the umask, of a file whose mode the guest has not said.
const newFile = 0o666

// localFile is a file of this machine that is written beside its name, and gets it when all is there.
type localFile struct {
	*os.File
	target string // empty: it is written under its name
}

// createLocal begins to write the file name. A link is followed; what is there and no regular file, such as a pipe, is
// written as it is.
func createLocal(name string, mode *uint32) (*localFile, error) {
	target, err := part.Target(name)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(target); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return nil, &fs.PathError{Op: "write", Path: target, Err: errors.New("is a directory")}
		}
		file, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &localFile{File: file}, nil
	}
	bits := fs.FileMode(newFile)
	if mode != nil {
		bits = fs.FileMode(*mode) & fs.ModePerm
	}
	beside := filepath.Join(filepath.Dir(target), ".virtctl-"+rand.Text())
	file, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, bits)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return &localFile{File: file, target: target}, nil
}

// keep gives the file its name.
func (f *localFile) keep() error {
	err := f.Close()
	if err == nil && f.target != "" {
		err = os.Rename(f.Name(), f.target)
	}
	if err != nil {
		f.drop()
	}
	return err
}

// drop removes what was written. A file that is in nobody's way may stay when it cannot be removed.
func (f *localFile) drop() {
	_ = f.Close() // it is closed already, or of no use
	if f.target != "" {
		_ = os.Remove(f.Name())
	}
}
