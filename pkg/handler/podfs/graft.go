package podfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"

	"golang.org/x/sys/unix"
)

// Graft makes a directory that one process has mounted visible to another, which may live in another container: a
// copy of the mount is taken in the first one's mount namespace and put into the second one's. Nothing of it
// shows on the node, in the kubelet's directories, or in any other container, and it is gone with the
// second one's container. It may be done again.
//
// No symbolic link is followed on either side. What is mounted brings no devices, no set-user-ID files, and nothing
// that can be executed.
//
// A file system whose server does not answer may hold it up for ever; the end of ctx ends the wait, and what was begun
// goes on.
func Graft(ctx context.Context, from *Process, source string, to *Process, target string, readOnly bool) error {
	if mounted, err := to.Mounted(target); err != nil || mounted {
		return err
	}
	return inNamespaces(ctx, []*Process{from, to}, func(enter func(int) error) error {
		if err := enter(0); err != nil {
			return err
		}
		tree, err := copyMount(source, readOnly)
		if err != nil {
			return err
		}
		defer unix.Close(tree)
		if err := enter(1); err != nil {
			return err
		}
		for _, dir := range []string{path.Dir(target), target} {
			if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
				return &fs.PathError{Op: "mkdir in the pod", Path: dir, Err: err}
			}
		}
		at, err := openDirectory(target)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		if err := unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
			return &fs.PathError{Op: "mount in the pod", Path: target, Err: err}
		}
		return nil
	})
}

// copyMount takes a copy of what is mounted at a directory, which is attached nowhere yet.
func copyMount(source string, readOnly bool) (tree int, err error) {
	dir, err := openDirectory(source)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	tree, err = unix.OpenTree(dir, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, &fs.PathError{Op: "copy the mount", Path: source, Err: err}
	}
	attributes := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
		Propagation: unix.MS_PRIVATE,
	}
	if readOnly {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return -1, errors.Join(&fs.PathError{Op: "restrict the mount", Path: source, Err: err}, unix.Close(tree))
	}
	return tree, nil
}

func openDirectory(name string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, &fs.PathError{Op: "open in the pod", Path: name, Err: err}
	}
	return fd, nil
}

// Prune undoes Graft. It fails with EBUSY while somebody uses a file below; what is not mounted is no error. As for ctx,
// it is like Graft.
func Prune(ctx context.Context, to *Process, target string) error {
	mounted, err := to.Mounted(target)
	if err != nil {
		return err
	}
	return inNamespaces(ctx, []*Process{to}, func(enter func(int) error) error {
		if err := enter(0); err != nil {
			return err
		}
		if mounted {
			if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
				return &fs.PathError{Op: "unmount in the pod", Path: target, Err: err}
			}
		}
		if err := unix.Rmdir(target); err != nil && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "rmdir in the pod", Path: target, Err: err}
		}
		return nil
	})
}

// inNamespaces runs f on a thread of its own, which may enter the processes' mount namespaces and ends with f. f must do
// nothing but system calls: its root is that of the namespace. It goes on when ctx ends, so it must not touch the
// processes, which their owner may close then.
func inNamespaces(ctx context.Context, of []*Process, f func(enter func(int) error) error) error {
	var namespaces []*os.File
	closeAll := func() {
		for _, ns := range namespaces {
			ns.Close()
		}
	}
	for _, p := range of {
		ns, err := p.open("ns/mnt", unix.O_RDONLY)
		if err != nil {
			closeAll()
			return fmt.Errorf("open the pod's mount namespace: %w", err)
		}
		namespaces = append(namespaces, ns)
	}
	enter := func(i int) error {
		if err := unix.Setns(int(namespaces[i].Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter the pod's mount namespace: %w", err)
		}
		return nil
	}
	done := make(chan error, 1)
	go func() {
		defer closeAll()
		runtime.LockOSThread() // and never unlock: the runtime ends the thread with the goroutine
		// A thread that shares its root and working directory with others may not enter a mount namespace.
		err := unix.Unshare(unix.CLONE_FS)
		if err != nil {
			err = fmt.Errorf("make a thread for the pod's mounts: %w", err)
		} else {
			err = f(enter)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the volume's file system does not answer: %w", ctx.Err())
	}
}

// MakeBlock makes a device node for the launcher's user in the pod's /dev/DIR, which is made too. It may be
// done again.
func (p *Process) MakeBlock(name string, device uint64) error {
	dir, err := p.deviceDir(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, base := int(dir.Fd()), path.Base(name)
	var stat unix.Stat_t
	err = unix.Fstatat(fd, base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFBLK || stat.Rdev != device) {
		if err := unix.Unlinkat(fd, base, 0); err != nil {
			return fmt.Errorf("replace %s in the pod: %w", name, err)
		}
		err = unix.ENOENT
	}
	if errors.Is(err, unix.ENOENT) {
		err = unix.Mknodat(fd, base, unix.S_IFBLK|0o600, int(device))
	}
	if err != nil {
		return fmt.Errorf("make %s in the pod: %w", name, err)
	}
	return p.HandOver(name, unix.S_IFBLK)
}

// deviceDir opens a directory in the pod's /dev, made when it is not there.
func (p *Process) deviceDir(name string) (*os.File, error) {
	dev, err := p.inRoot("/dev", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	if err := unix.Mkdirat(int(dev.Fd()), path.Base(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s in the pod: %w", name, err)
	}
	return p.inRoot(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
}

// RemoveBlock undoes MakeBlock, and says which device it was; zero for none.
func (p *Process) RemoveBlock(name string) (device uint64, err error) {
	dir, err := p.inRoot(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	var stat unix.Stat_t
	err = unix.Fstatat(int(dir.Fd()), path.Base(name), &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err == nil {
		err = unix.Unlinkat(int(dir.Fd()), path.Base(name), 0)
	}
	if err != nil {
		return 0, fmt.Errorf("remove %s in the pod: %w", name, err)
	}
	return stat.Rdev, nil
}
