package podfs

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/handler/podfs/beneath"
	"github.com/virtkit/virtkit/pkg/names"
)

// imageUnit is the unit, bytes, to which the size of a new image is rounded.
const imageUnit = 1 << 20

// EnsureImage makes sure that an image of a name exists in a directory of the pod, which is the node's. A missing image
// is made, the launcher's user's, sparse, of size bytes, rounded down to MiB; with size 0 none is made, and the
// launcher reports that. Nobody ever sees it with another size. An existing one stays as it is, its owner, too: it may
// be anybody's.
func (p *Process) EnsureImage(directory, name string, size int64) error {
	root, err := beneath.Root(p.proc)
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := root.MountLinked(directory)
	if err != nil {
		return fmt.Errorf("in the pod: %w", err)
	}
	defer dir.Close()
	switch err := isImage(dir, name); {
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case size == 0:
		return nil
	}
	if size = size / imageUnit * imageUnit; size == 0 {
		return errors.New("the image would have less than 1Mi; ask for more capacity")
	}
	free, err := dir.Free()
	if err != nil {
		return err
	}
	if free < size {
		return fmt.Errorf("there is room for %d bytes, and the image is to have %d", free, size)
	}
	err = dir.MakeFile(name, size, names.User, names.Group, 0o660)
	if errors.Is(err, fs.ErrExist) {
		return isImage(dir, name) // somebody else was first
	}
	return err
}

// isImage fails unless the file of a name is a regular one.
func isImage(dir *beneath.Dir, name string) error {
	node, err := dir.FindMounted(name)
	if err != nil {
		return err
	}
	defer node.Close()
	if node.Stat().Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s is %w", name, beneath.ErrNotRegular)
	}
	return nil
}
