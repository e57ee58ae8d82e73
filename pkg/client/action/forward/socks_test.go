package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

func newSocks(t *testing.T, g *guest, notify func(Event)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := &Socks{Opener: g, Namespace: "ns", Patience: time.Millisecond, Notify: notify}
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// ask makes a request and gives the connection with the reply's code.
func ask(t *testing.T, address string, request []byte) (net.Conn, byte) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte{5, 2, 1, 0}); err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, 2)
	if _, err := io.ReadFull(conn, greeting); err != nil || greeting[0] != 5 || greeting[1] != 0 {
		t.Fatalf("greeting %v, %v", greeting, err)
	}
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 10)
	if _, err := io.ReadFull(conn, reply); err != nil {
		t.Fatal(err)
	}
	return conn, reply[1]
}

func byName(name string, port uint16) []byte {
	return append(append([]byte{5, 1, 0, 3, byte(len(name))}, name...), byte(port>>8), byte(port))
}

func TestSocksReachesGuestsByName(t *testing.T) {
	g := newGuest(t)
	g.refuse = func(resource, name string) error {
		if resource == client.VMIs && name != "demo" {
			return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
		}
		return nil
	}
	conn, reply := ask(t, newSocks(t, g, nil), byName("demo.other.vmi", echo(t)))
	if reply != 0 {
		t.Fatalf("reply %d", reply)
	}
	if _, err := io.WriteString(conn, "through a name"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "through a name" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestSocksReplies(t *testing.T) {
	g := newGuest(t)
	events := make(chan Event, 10)
	address := newSocks(t, g, func(e Event) {
		if e.Kind == Failed {
			events <- e
		}
	})
	gone, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := uint16(gone.Addr().(*net.TCPAddr).Port)
	gone.Close()
	g.refuse = func(_, name string) error {
		switch name {
		case "none":
			return apierrors.NewNotFound(schema.GroupResource{}, name)
		case "secret":
			return apierrors.NewForbidden(schema.GroupResource{}, name, errors.New("no"))
		case "broken":
			return apierrors.NewServiceUnavailable("down")
		}
		return nil
	}
	for what, tc := range map[string]struct {
		request []byte
		reply   byte
	}{
		"refused":     {byName("demo", free), socksRefused},
		"no such VM":  {byName("none", 1), socksHostUnreachable},
		"forbidden":   {byName("secret.x", 1), socksNotAllowed},
		"unavailable": {byName("broken", 1), socksFailure},
		"no name":     {byName("a..b", 1), socksHostUnreachable},
		"an address":  {[]byte{5, 1, 0, 1, 10, 0, 0, 1, 0, 22}, socksAddressUnsupported},
		"text of one": {byName("10.0.0.1", 22), socksHostUnreachable},
		"IPv6":        {append([]byte{5, 1, 0, 4}, make([]byte, 18)...), socksAddressUnsupported},
		"BIND":        {append([]byte{5, 2, 0, 3, 1}, "a\x00\x16"...), socksBadCommand},
		"no kind":     {[]byte{5, 1, 0, 9}, socksAddressUnsupported},
	} {
		if _, reply := ask(t, address, tc.request); reply != tc.reply {
			t.Errorf("%s: reply %d, want %d", what, reply, tc.reply)
		}
		if e := <-events; e.Kind != Failed || e.Err == nil {
			t.Errorf("%s: %+v", what, e)
		}
	}
	for _, greeting := range []string{"\x04\x01", "GET / HTTP/1.1\r\n\r\n", "\x05\x01\x02"} {
		// SOCKS4, HTTP, a password
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, greeting); err != nil {
			t.Fatal(err)
		}
		<-events
		conn.Close()
	}
}

func TestSocksNames(t *testing.T) {
	s := &Socks{Namespace: "ns"}
	for host, want := range map[string]Target{
		"demo": {"ns", "demo", false}, "demo.": {"ns", "demo", false}, "demo.prod": {"prod", "demo", false},
		"demo.vm": {"ns", "demo", false}, "demo.vmi": {"ns", "demo", true}, "demo.prod.vmi": {"prod", "demo", true},
		"a.b.prod.vm": {"prod", "a.b", false}, "Demo.Prod": {"prod", "demo", false}, "vm": {"ns", "vm", false},
	} {
		if got, err := s.target(host); err != nil || got != want {
			t.Errorf("%s: %+v, %v", host, got, err)
		}
	}
	for _, host := range []string{"", ".", "a b", "a/b", "..", "::1", "127.0.0.1", "a..b", "a_b"} {
		if got, err := s.target(host); err == nil {
			t.Errorf("%q: %+v", host, got)
		}
	}
}

func FuzzSocksRequest(f *testing.F) {
	f.Add([]byte{5, 1, 0, 5, 1, 0, 3, 1, 'a', 0, 22})
	f.Add([]byte{5, 255})
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _, _, _ = readRequest(&script{data: data})
	})
}

// script is a client that says data and hears nothing.
type script struct{ data []byte }

func (s *script) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.data)
	s.data = s.data[n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error) { return len(p), nil }
