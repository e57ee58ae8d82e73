// Package vsock connects to vsock ports of guests: streams between a guest and its node that need no network. A guest
// is found by its CID, which is valid on the whole node; so virt-handler dials.
package vsock

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

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
	*os.File
	local, remote Address
}

// LocalAddr and RemoteAddr are the two ends'.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the guest's end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// CloseWrite signals to the guest that nothing more comes.
func (c *Conn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var wrong error
	if err := raw.Control(func(fd uintptr) { wrong = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		return err
	}
	return wrong
}

// Dial connects to a port of the guest with a CID. The errors are the kernel's: ECONNRESET when nobody listens, ENODEV
// when there is no such guest, and the context's when the guest does not answer in time.
func Dial(ctx context.Context, to Address) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a vsock: %w", err)
	}
	err = unix.Connect(fd, &unix.SockaddrVM{CID: to.CID, Port: to.Port})
	c := &Conn{File: os.NewFile(uintptr(fd), "vsock"), local: Address{CID: unix.VMADDR_CID_HOST}, remote: to}
	if err == unix.EINPROGRESS { //nolint:errorlint // a system call's, bare
		err = c.established(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect to vsock %s: %w", to, err)
	}
	return c, nil
}

// established waits for the end of a connect that has begun.
func (c *Conn) established(ctx context.Context) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var number int
	var wrong error
	err = raw.Write(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(ready, 0); err != nil || n == 0 {
			return false // interrupted, or nothing yet
		}
		number, wrong = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		return true
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case wrong != nil:
		return wrong
	case number != 0:
		return unix.Errno(number)
	}
	return nil
}
