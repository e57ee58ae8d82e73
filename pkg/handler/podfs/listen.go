package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/virtkit/virtkit/pkg/names"
)

// Listen makes a unix socket in the volume to which the launcher's user can connect. A file of that name
// that is left over makes way.
func (r *Run) Listen(name string) (*net.UnixListener, error) {
	if err := r.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	path, err := r.dir.Path(name)
	if err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", name, err)
	}
	// The path means nothing once the directory's descriptor is closed, or something else.
	listener.SetUnlinkOnClose(false)
	if err := r.give(name); err != nil {
		listener.Close()
		return nil, fmt.Errorf("give the socket %s to the launcher: %w", name, err)
	}
	return listener, nil
}

// give makes the launcher's user the owner of a socket.
func (r *Run) give(name string) error {
	node, err := r.dir.Find(name)
	if err != nil {
		return err
	}
	defer node.Close()
	if _, err := node.Socket(); err != nil {
		return err
	}
	return node.Give(names.User, names.Group)
}
