package vsock

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/mdlayher/socket"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ net.Conn = (*Conn)(nil)

// pair is a connection and the guest's end of it, on sockets of another kind: this machine need not have vsock.
func pair(t *testing.T) (c *Conn, guest *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := socket.New(fds[0], "vsock")
	if err != nil {
		t.Fatal(err)
	}
	c, guest = &Conn{Conn: s, remote: Address{7, 22}}, os.NewFile(uintptr(fds[1]), "guest")
	t.Cleanup(func() { _ = c.Close(); _ = guest.Close() })
	return c, guest
}

func TestHalfClose(t *testing.T) {
	c, guest := pair(t)
	if _, err := c.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(guest); err != nil || string(got) != "request" {
		t.Fatalf("the guest got %q, %v", got, err)
	}
	if _, err := guest.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	_ = guest.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "answer" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := c.RemoteAddr().String(); got != "7:22" {
		t.Errorf("the guest is %s", got)
	}
}

// TestNoGuest: whatever this machine knows of vsock, there is no such guest.
func TestNoGuest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c, err := Dial(ctx, Address{CID: 0xfffffff0, Port: 1024}); err == nil {
		_ = c.Close()
		t.Error("connected to nobody")
	}
}

// TestContext: no guest is asked for longer than the caller wants.
func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Dial(ctx, Address{CID: 0xfffffff0, Port: 1024})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Errorf("got %v", err)
	}
}
