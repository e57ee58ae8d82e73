package stream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

// What broke a connection is said without the cluster's addresses, and goes so to the other side of a splice.
func TestCause(t *testing.T) {
	here := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4242}
	there := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 22}
	reset := &net.OpError{
		Op: "read", Net: "tcp", Source: here, Addr: there, Err: os.NewSyscallError("read", syscall.ECONNRESET),
	}
	for want, err := range map[string]error{
		"connection reset by peer": fmt.Errorf("forward: %w", reset),
		"connection refused": &url.Error{Op: "Get", URL: "https://10.0.0.2:8186/v1", Err: &net.OpError{
			Op: "dial", Net: "tcp", Addr: there, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}},
		"no such host": &net.DNSError{Err: "no such host", Name: "node1", Server: "10.96.0.10:53"},
		"EOF":          io.EOF,
	} {
		if got := Cause(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
		if _, got := closeReason(err); got != want {
			t.Errorf("%v: the other side is told %q, want %q", err, got, want)
		}
	}
	broken := (&Conn{}).readError(reset)
	var closed *CloseError
	if !errors.As(broken, &closed) || closed.Reason != "connection reset by peer" ||
		!errors.Is(broken, syscall.ECONNRESET) {
		t.Errorf("%#v", broken)
	}
}
