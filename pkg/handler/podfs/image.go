package podfs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

// imageUnit is what the size of a new image is a multiple of, bytes.
const imageUnit = 1 << 20

// EnsureImage gives the launcher's user the image of a name in a directory of the pod, which is one of the node's. One that
// is not there is made, sparse, of size bytes, rounded down to MiB; with size 0 the launcher is left to miss it. Nobody ever sees it of
// another size, and one that is there keeps what it has.
func (p *Process) EnsureImage(directory, name string, size int64) error {
	dir, err := p.inRoot(directory, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = giveImage(dir, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if size == 0 {
		return nil
	}
	if size = size / imageUnit * imageUnit; size == 0 {
		return errors.New("the image would have less than 1Mi; ask for more capacity")
	}
	if err := makeImage(dir, name, size); err != nil {
		return err
	}
	return giveImage(dir, name)
}

// giveImage makes the launcher's user the owner of an image. It follows no link and takes regular files only.
func giveImage(dir *os.File, name string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s is not a regular file", name)
	case stat.Uid == names.User && stat.Gid == names.Group:
		return nil
	}
	if err := unix.Fchown(fd, names.User, names.Group); err != nil {
		return fmt.Errorf("give %s to the launcher: %w", name, err)
	}
	return nil
}

// makeImage makes a sparse file, under no name until it has its size. When somebody else was first, theirs stays.
func makeImage(dir *os.File, name string, size int64) error {
	var room unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &room); err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	if free := int64(room.Bavail) * room.Bsize; free < size {
		return fmt.Errorf("there is room for %d bytes, and the image is to have %d", free, size)
	}
	temporary := "." + rand.Text() + ".new" // another node may share the directory and make the same image
	fd, err := unix.Openat(int(dir.Fd()), temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o660)
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	err = errors.Join(unix.Ftruncate(fd, size), unix.Fchmod(fd, 0o660), unix.Close(fd))
	if err == nil {
		err = unix.Linkat(int(dir.Fd()), temporary, int(dir.Fd()), name, 0)
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err = errors.Join(err, unix.Unlinkat(int(dir.Fd()), temporary, 0)); err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	return nil
}
