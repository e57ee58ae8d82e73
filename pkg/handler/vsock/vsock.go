// Package vsock connects to vsock ports of guests: streams between a guest and its node that need no network. A guest
// is found by its CID, which is valid on the whole node; so virt-handler dials.
//
// The sockets are those of mdlayher/socket. mdlayher/vsock, which is built on it, was tried: its Dial takes no context,
// so that a guest that does not answer holds it for the kernel's two seconds, and another caller cannot end it.
package vsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

// Address is one end of a connection.
type Address struct{ CID, Port uint32 }

// Network returns the network of vsock.
func (Address) Network() string { return "vsock" }

func (a Address) String() string {
	return strconv.FormatUint(uint64(a.CID), 10) + ":" + strconv.FormatUint(uint64(a.Port), 10)
}

// Conn is a connection. Its directions end one by one.
type Conn struct {
	*socket.Conn
	remote Address
}

// LocalAddr returns the node's end.
func (c *Conn) LocalAddr() net.Addr { return Address{CID: unix.VMADDR_CID_HOST} }

// RemoteAddr returns the guest's end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Dial connects to a port of the guest with a CID. The errors are the kernel's: ECONNRESET when nobody listens, ENODEV
// when there is no such guest, and the context's when the guest does not answer in time.
func Dial(ctx context.Context, to Address) (*Conn, error) {
	s, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, "vsock", nil)
	if err != nil {
		return nil, fmt.Errorf("open a vsock: %w", err)
	}
	if _, err := s.Connect(ctx, &unix.SockaddrVM{CID: to.CID, Port: to.Port}); err != nil {
		_ = s.Close()
		if call := (*os.SyscallError)(nil); errors.As(err, &call) {
			err = call.Err // "connect" is said below
		}
		return nil, fmt.Errorf("connect to vsock %s: %w", to, err)
	}
	return &Conn{Conn: s, remote: to}, nil
}
