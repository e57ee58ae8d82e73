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

	"github.com/virtkit/virtkit/pkg/handler/podfs/beneath"
)

// AttachMount makes a directory that one process has mounted visible to another, which may live in another container: a
// copy of the mount is taken in the first one's mount namespace and put into the second one's. Nothing of it
// shows on the node, in the kubelet's directories, or in any other container, and it is gone with the
// second one's container. It may be done again.
//
// No symbolic link is followed on either side. What is mounted brings no devices, no set-user-ID files, and nothing
// that can be executed, and no link in it is followed.
//
// A file system whose server does not answer may hold it up for ever; the end of ctx ends the wait, and what was begun
// goes on.
func AttachMount(ctx context.Context, from *Process, source string, to *Process, target string, readOnly bool) error {
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
		above, err := mountHere(path.Dir(path.Dir(target)))
		if err != nil {
			return err
		}
		defer above.Close()
		parent, err := above.MakeDir(path.Base(path.Dir(target)), 0o755)
		if err != nil {
			return fmt.Errorf("in the pod: %w", err)
		}
		defer parent.Close()
		at, err := parent.MakeDir(path.Base(target), 0o755)
		if err != nil {
			return fmt.Errorf("in the pod: %w", err)
		}
		defer at.Close()
		if err := unix.MoveMount(tree, "", at.Fd(), "", unix.MOVE_MOUNT_F_EMPTY_PATH|
			unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
			return &fs.PathError{Op: "mount in the pod", Path: target, Err: err}
		}
		return nil
	})
}

// copyMount takes a copy of what is mounted at a directory, which is attached nowhere yet.
func copyMount(source string, readOnly bool) (tree int, err error) {
	dir, err := mountHere(source)
	if err != nil {
		return -1, err
	}
	defer dir.Close()
	tree, err = unix.OpenTree(dir.Fd(), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
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
	attributes.Attr_set |= unix.MOUNT_ATTR_NOSYMFOLLOW
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.14
		attributes.Attr_set &^= unix.MOUNT_ATTR_NOSYMFOLLOW
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attributes)
	}
	if err != nil {
		return -1, errors.Join(&fs.PathError{Op: "restrict the mount", Path: source, Err: err}, unix.Close(tree))
	}
	return tree, nil
}

// mountHere opens a directory in the mount namespace that the thread is in.
func mountHere(name string) (*beneath.Dir, error) {
	root, err := beneath.Open("/")
	if err != nil {
		return nil, fmt.Errorf("in the pod: %w", err)
	}
	defer root.Close()
	dir, err := root.Mount(name)
	if err != nil {
		return nil, fmt.Errorf("in the pod: %w", err)
	}
	return dir, nil
}

// Prune undoes AttachMount. It fails with EBUSY while somebody uses a file below; what is not mounted is no error. ctx
// is as for AttachMount.
func Prune(ctx context.Context, to *Process, target string) error {
	mounted, err := to.Mounted(target)
	if err != nil {
		return err
	}
	return inNamespaces(ctx, []*Process{to}, func(enter func(int) error) error {
		if err := enter(0); err != nil {
			return err
		}
		parent, err := mountHere(path.Dir(target))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer parent.Close()
		if mounted {
			// By its name in a directory that is known: what is mounted cannot be held by a descriptor meanwhile. The
			// working directory is this thread's alone.
			if err := unix.Fchdir(parent.Fd()); err != nil {
				return &fs.PathError{Op: "enter in the pod", Path: path.Dir(target), Err: err}
			}
			if err := unix.Unmount(path.Base(target), unix.UMOUNT_NOFOLLOW); err != nil {
				return &fs.PathError{Op: "unmount in the pod", Path: target, Err: err}
			}
		}
		if err := parent.RemoveDir(path.Base(target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("in the pod: %w", err)
		}
		return nil
	})
}

// inNamespaces runs f on a thread of its own, which may enter the processes' mount namespaces and ends with f. f must
// make nothing but system calls: its root is the namespace's. It goes on when ctx ends, so it must not touch the
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
