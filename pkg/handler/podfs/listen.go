package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

// Listen makes a unix socket in the volume to which the launcher's user can connect. A file of that name
// that is left over makes way.
func (r *Run) Listen(name string) (*net.UnixListener, error) {
	if err := r.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	dir, err := r.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// However long the volume's path is, this one is within the kernel's limit for sockets. bind follows no link
	// in the last element and fails if it exists.
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", name, err)
	}
	// The path means nothing once the directory's descriptor is closed, or something else.
	listener.SetUnlinkOnClose(false)
	if err := unix.Fchownat(int(dir.Fd()), name, names.User, names.Group, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		listener.Close()
		return nil, fmt.Errorf("give the socket %s to the launcher: %w", name, err)
	}
	return listener, nil
}
