// Package podfstest makes what a test's own process needs to pass for a launcher: a socket that the launcher's user
// serves, and the file by which the kubelet marks the launcher's container. It needs root.
package podfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
)

// Listen makes a socket in a directory, however long its path is, that the kernel says a user listens on. It stays when
// it is closed, as after kill -9.
func Listen(directory, name string, user int) (net.Listener, error) {
	dir, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), name)
	defer socket.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)}); err != nil {
		return nil, fmt.Errorf("bind %s: %w", name, err)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the runtime ends the thread with the goroutine
		// Of this thread alone, which the function of package unix is not.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(user), ^uintptr(0)); errno != 0 {
			done <- fmt.Errorf("become user %d (run as root): %w", user, errno)
			return
		}
		done <- unix.Listen(fd, unix.SOMAXCONN)
	}()
	if err := <-done; err != nil {
		return nil, err
	}
	return net.FileListener(socket)
}

// MarkContainer has a process whose root is rootfs pass for one in a container of a pod: both must be on one file
// system.
func MarkContainer(podsDir, rootfs string, pod types.UID, container string) error {
	dir := filepath.Join(podsDir, string(pod), "containers", container)
	made, seen := filepath.Join(dir, "0a1b2c3d"), filepath.Join(rootfs, "dev/termination-log")
	for _, d := range []string{dir, filepath.Dir(seen)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(made, nil, 0o666); err != nil {
		return err
	}
	if err := os.Remove(seen); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(made, seen)
}

// Launcher does both for a launcher: its socket is in run, its root at rootfs.
func Launcher(podsDir, rootfs, run string, pod types.UID) (net.Listener, error) {
	if err := MarkContainer(podsDir, rootfs, pod, names.ContainerCompute); err != nil {
		return nil, err
	}
	return Listen(run, names.SocketLauncher, names.User)
}
