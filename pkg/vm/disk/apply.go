package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// apply makes the plan's images, at the same time, and finds out which of them take O_DIRECT.
func apply(ctx context.Context, plan Plan, run Run) (map[string]domain.Source, error) {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range plan.Steps {
		group.Go(func() error {
			if err := s.make(ctx, run); err != nil {
				if s.Volume == "" {
					return fmt.Errorf("write %s: %w", s.Path, err)
				}
				return volumeError(s.Volume, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := make(map[string]domain.Source, len(plan.Sources))
	for volume, src := range plan.Sources {
		direct, err := directIO(src)
		if err != nil {
			return nil, volumeError(volume, err)
		}
		src.DirectIO = direct && !src.Live
		if src.Blocks != nil {
			if *src.Blocks, err = blocks(src); err != nil {
				return nil, volumeError(volume, err)
			}
		}
		out[volume] = src
	}
	return out, nil
}

func (s Step) make(ctx context.Context, run Run) error {
	switch s.Action {
	case CreateQcow2:
		// qemu-img leaves an old file's clusters in place, so start from none.
		if err := os.Remove(s.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the old image: %w", err)
		}
		return run(ctx, "qemu-img", createArgs(s)...)
	case CreateRaw:
		return createRaw(s.Path, s.Size)
	case WriteFile:
		return os.WriteFile(s.Path, s.Data, 0o600)
	}
	return fmt.Errorf("unknown action %q", s.Action)
}

// createArgs returns qemu-img's arguments. With -u it does not open the backing file: its format and size are known.
func createArgs(s Step) []string {
	args := []string{"create", "-q", "-f", FormatQcow2}
	if s.Backing != nil {
		args = append(args, "-u", "-b", s.Backing.Path, "-F", s.Backing.Format)
	}
	return append(args, s.Path, strconv.FormatInt(s.Size, 10))
}

// createRaw makes a sparse file under another name and then gives it its own, so that nobody ever
// sees a disk.img of the wrong size. When somebody else was first, theirs stays.
func createRaw(name string, size int64) error {
	f, err := os.CreateTemp(path.Dir(name), "."+path.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("create %s: %w", path.Base(name), err)
	}
	temp := f.Name()
	err = errors.Join(f.Chmod(0o660), f.Truncate(size), f.Close())
	if err == nil {
		err = rename(temp, name)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path.Base(name), errors.Join(err, os.Remove(temp)))
	}
	return nil
}

// rename gives temp the name, unless the name is taken; then temp goes away. File systems without
// RENAME_NOREPLACE get a link, which does not replace either.
func rename(temp, name string) error {
	err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		if err = os.Link(temp, name); err == nil {
			return os.Remove(temp)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return os.Remove(temp)
	}
	return err
}

// directIO reports whether an image and all it lies on open with O_DIRECT; tmpfs, for one, may refuse. It also finds
// out whether the image may be used at all.
func directIO(src domain.Source) (bool, error) {
	const careful = unix.O_NOFOLLOW | unix.O_NONBLOCK // somebody else may write the claim
	flags := os.O_RDWR
	if src.ReadOnly {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(src.Path, flags|careful, 0)
	if err != nil {
		return false, fmt.Errorf("open the image: %w", err)
	}
	if err := f.Close(); err != nil {
		return false, fmt.Errorf("open the image: %w", err)
	}
	f, err = os.OpenFile(src.Path, os.O_RDONLY|unix.O_DIRECT|careful, 0)
	if err != nil {
		return false, nil //nolint:nilerr // that it fails is the answer
	}
	if err := f.Close(); err != nil {
		return false, fmt.Errorf("open the image: %w", err)
	}
	if src.Backing != nil {
		return directIO(*src.Backing)
	}
	return true, nil
}
