package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
)

// loopback makes the setup's guest this machine.
func (s *setup) loopback() {
	s.server.Dial = func(ctx context.Context, vmi types.NamespacedName, protocol string, port uint16,
	) (net.Conn, error) {
		if vmi.Name != "demo" {
			return nil, fmt.Errorf("VirtualMachineInstance %s does not run here", vmi)
		}
		return new(net.Dialer).DialContext(ctx, protocol, fmt.Sprintf("127.0.0.1:%d", port))
	}
}

func TestPortForwardHalfClose(t *testing.T) {
	s := newSetup(t)
	s.loopback()
	s.halfClose("portforward/%d")
}

// halfClose connects to a port of the guest by a stream: each side ends what it sends by itself.
func (s *setup) halfClose(path string) {
	t := s.t
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := s.dial(fmt.Sprintf(path, l.Addr().(*net.TCPAddr).Port))
	guest, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	send(t, client, "request")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(guest); err != nil || string(got) != "request" {
		t.Fatalf("the guest got %q, %v", got, err)
	}
	send(t, guest, "answer after the end of the request")
	guest.Close()
	if got, err := io.ReadAll(client); err != nil || string(got) != "answer after the end of the request" {
		t.Errorf("the client got %q, %v", got, err)
	}
}

func TestPortForwardOfDatagrams(t *testing.T) {
	s := newSetup(t)
	s.loopback()
	guest, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	client := stream.Packets{Conn: s.dial(fmt.Sprintf("portforward/%d/UDP", guest.LocalAddr().(*net.UDPAddr).Port))}
	buf := make([]byte, stream.BufferSize)
	for _, size := range []int{3, 0, 20000} {
		if _, err := client.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		n, from, err := guest.ReadFrom(buf)
		if err != nil || n != size {
			t.Fatalf("the guest got %d bytes, %v; want %d", n, err, size)
		}
		if _, err := guest.WriteTo(buf[:n], from); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Read(buf); err != nil || n != size {
			t.Fatalf("the answer has %d bytes, %v; want %d", n, err, size)
		}
	}
	// UDP knows no end, so the client's ends both directions, normally.
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// A datagram that nobody listens for is lost, and the next one arrives.
func TestPortForwardOutlivesLostDatagrams(t *testing.T) {
	s := newSetup(t)
	s.loopback()
	guest, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := guest.LocalAddr().String()
	guest.Close()
	client := stream.Packets{Conn: s.dial(fmt.Sprintf("portforward/%d/udp", guest.LocalAddr().(*net.UDPAddr).Port))}
	for range 3 {
		if _, err := client.Write([]byte("lost")); err != nil {
			t.Fatal(err)
		}
	}
	if guest, err = net.ListenPacket("udp4", address); err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	for range 2 {
		if _, err := client.Write([]byte("heard")); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 10)
	for {
		n, _, err := guest.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		if string(buf[:n]) == "heard" {
			return
		}
	}
}

func TestPortForwardRefusals(t *testing.T) {
	s := newSetup(t)
	s.loopback()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().(*net.TCPAddr).Port
	l.Close()
	for path, want := range map[string]struct {
		code   int32
		reason string
		text   string
	}{
		fmt.Sprintf("demo/portforward/%d", free): {
			http.StatusConflict, string(stream.ReasonPortRefused),
			fmt.Sprintf("nothing listens on its port %d/tcp", free),
		},
		fmt.Sprintf("other/portforward/%d/tcp", free): {http.StatusConflict, "Conflict", "does not run here"},
		"demo/portforward/0":                          {http.StatusBadRequest, "BadRequest", "1 to 65535"},
		"demo/portforward/65536/udp":                  {http.StatusBadRequest, "BadRequest", "1 to 65535"},
		"demo/portforward/22/sctp":                    {http.StatusBadRequest, "BadRequest", "tcp or udp"},
	} {
		_, err := s.dialName(path, "")
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != want.code ||
			string(status.Status().Reason) != want.reason || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestGuestThatDoesNotAnswer(t *testing.T) {
	s := newSetup(t)
	s.server.Dial = func(context.Context, types.NamespacedName, string, uint16) (net.Conn, error) {
		return nil, context.DeadlineExceeded
	}
	_, err := s.dialName("demo/", "portforward/22")
	if apierrors.ReasonForError(err) != stream.ReasonGuestUnreachable ||
		!strings.Contains(err.Error(), "network is not up") {
		t.Errorf("%v", err)
	}
}

// A guest that is killed ends no connection, and neither does its pod's network: its stream ends with its life.
func TestPortForwardEndsWithTheGuest(t *testing.T) {
	s := newSetup(t)
	s.loopback()
	life, end := context.WithCancelCause(t.Context())
	s.server.Guest = func(types.NamespacedName) context.Context { return life }
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := s.dial(fmt.Sprintf("portforward/%d", l.Addr().(*net.TCPAddr).Port))
	guest, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	end(ErrEnded)
	var reason *stream.CloseError
	if _, err := client.Read(make([]byte, 1)); !errors.As(err, &reason) || *reason != *ErrEnded {
		t.Errorf("the client reads %v", err)
	}
	if _, err := guest.Read(make([]byte, 1)); err == nil {
		t.Error("the connection to the guest is open")
	}
}

// TestPortForwardOfAnother: who means another instance than the one that runs here is told so before anything is
// dialled.
func TestPortForwardOfAnother(t *testing.T) {
	s := newSetup(t)
	s.loopback()
	s.server.Runs = func(types.NamespacedName) types.UID { return "new" }
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := fmt.Sprintf("portforward/%d?uid=", l.Addr().(*net.TCPAddr).Port)
	if _, err := s.dialName("demo/", path+"old"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if err := s.dial(path + "new").Close(); err != nil {
		t.Error(err)
	}
}
