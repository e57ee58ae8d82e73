package podfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/handler/podfs/beneath"
)

// RefuseLinks has nothing in the container follow links in what is mounted at directories: whoever else may write a
// volume cannot lead QEMU, which opens images by path, to another file of the pod. A directory that is not there, or on
// which nothing is mounted, is no error, nor is a kernel that cannot do it (before Linux 5.14). As for ctx, it is like
// AttachMount.
func (p *Process) RefuseLinks(ctx context.Context, directories []string) error {
	if len(directories) == 0 {
		return nil
	}
	return inNamespaces(ctx, []*Process{p}, func(enter func(int) error) error {
		if err := enter(0); err != nil {
			return err
		}
		for _, name := range directories {
			if err := refuseLinks(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
				return err
			}
		}
		return nil
	})
}

func refuseLinks(name string) error {
	root, err := beneath.Open("/")
	if err != nil {
		return fmt.Errorf("in the pod: %w", err)
	}
	defer root.Close()
	dir, err := root.MountLinked(name)
	if err != nil {
		return fmt.Errorf("in the pod: %w", err)
	}
	defer dir.Close()
	if err := unix.MountSetattr(dir.Fd(), "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSYMFOLLOW}); err != nil {
		return fmt.Errorf("refuse links in %s of the pod: %w", name, err)
	}
	return nil
}
