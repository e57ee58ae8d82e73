package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
)

// standBy opens a stream on standby to a port of the guest.
func (s *setup) standBy(port int, protocol string) *stream.Conn {
	s.t.Helper()
	conn, err := s.dialWith("demo/", fmt.Sprintf("portforward/%d/%s", port, protocol), stream.Options{Standby: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// counting counts the connections to the guest.
func (s *setup) counting() *int {
	s.loopback()
	count, dial := new(int), s.server.Dial
	s.server.Dial = func(ctx context.Context, vmi types.NamespacedName, protocol string, port uint16,
	) (net.Conn, error) {
		*count++
		return dial(ctx, vmi, protocol, port)
	}
	return count
}

// TestStandby: the guest is connected to when it is asked for, and the guest's first word comes after the answer.
func TestStandby(t *testing.T) {
	s := newSetup(t)
	dials := s.counting()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := s.standBy(l.Addr().(*net.TCPAddr).Port, "tcp")
	if !client.Standby() || *dials != 0 {
		t.Fatalf("on standby %v, after %d connections to the guest", client.Standby(), *dials)
	}
	if err := client.Ask(); err != nil {
		t.Fatal(err)
	}
	send(t, client, "early")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	guest, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	send(t, guest, "hello")
	if err := client.AwaitAnswer(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(guest); err != nil || string(got) != "early" {
		t.Errorf("the guest got %q, %v", got, err)
	}
	guest.Close()
	if got, err := io.ReadAll(client); err != nil || string(got) != "hello" {
		t.Errorf("the client got %q, %v", got, err)
	}
}

// TestStandbyIsOfTCP: a stream of datagrams is never on standby, and neither is one of another verb.
func TestStandbyIsOfTCP(t *testing.T) {
	s := newSetup(t)
	dials := s.counting()
	if conn := s.standBy(9, "udp"); conn.Standby() || *dials != 1 {
		t.Errorf("on standby %v, after %d connections to the guest", conn.Standby(), *dials)
	}
}

func TestStandbyRefusals(t *testing.T) {
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := closed.Addr().(*net.TCPAddr).Port
	closed.Close()
	for name, tc := range map[string]struct {
		// do is what the client does, or what happens to the guest.
		do   func(client *stream.Conn, end context.CancelCauseFunc) error
		want stream.CloseError
	}{
		"nobody listens": {
			func(client *stream.Conn, _ context.CancelCauseFunc) error { return client.Ask() },
			stream.CloseError{Code: stream.CodeInternal, Reason: "the guest was not reached"},
		},
		"another protocol": {
			func(client *stream.Conn, _ context.CancelCauseFunc) error {
				_, err := io.WriteString(client, "GET /")
				return err
			},
			stream.CloseError{Code: stream.CodeInternal, Reason: "the guest was not reached"},
		},
		"guest ends": {func(_ *stream.Conn, end context.CancelCauseFunc) error {
			end(ErrEnded)
			return nil
		}, *ErrEnded},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			s.loopback()
			life, end := context.WithCancelCause(t.Context())
			s.server.Guest = func(types.NamespacedName) context.Context { return life }
			client := s.standBy(port, "tcp")
			if err := tc.do(client, end); err != nil {
				t.Fatal(err)
			}
			var reason *stream.CloseError
			if err := client.AwaitAnswer(); !errors.As(err, &reason) || *reason != tc.want {
				t.Errorf("the client reads %v, not %v", err, &tc.want)
			}
		})
	}
}

// TestStandbyOfAnotherGuest: a guest that took the name's place while the port was dialled is not answered for.
func TestStandbyOfAnotherGuest(t *testing.T) {
	s := newSetup(t)
	life, end := context.WithCancelCause(t.Context())
	s.server.Guest = func(types.NamespacedName) context.Context { return life }
	ours, guest := net.Pipe()
	defer guest.Close()
	s.server.Dial = func(context.Context, types.NamespacedName, string, uint16) (net.Conn, error) {
		end(ErrEnded)
		return ours, nil
	}
	client := s.standBy(1, "tcp")
	if err := client.Ask(); err != nil {
		t.Fatal(err)
	}
	if err := client.AwaitAnswer(); err == nil {
		t.Error("the guest is said to be reached")
	}
	if _, err := guest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection to the guest: %v", err)
	}
}
