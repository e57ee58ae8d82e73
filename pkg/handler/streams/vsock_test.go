package streams

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// vsockOn makes the vsock ports of the setup's guest this machine's TCP ports.
func (s *setup) vsockOn() {
	s.server.DialVSOCK = func(ctx context.Context, _ types.NamespacedName, port uint32) (net.Conn, error) {
		if port == 7 {
			return nil, fmt.Errorf("connect: %w", syscall.ECONNRESET)
		}
		if port == 8 {
			return nil, fmt.Errorf("connect: %w", syscall.ENODEV)
		}
		return new(net.Dialer).DialContext(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	}
	s.server.GuestTLS = &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // as in the real one
}

func TestVSOCK(t *testing.T) {
	s := newSetup(t)
	s.vsockOn()
	s.halfClose("vsock?port=%d&tls=false")
}

func TestVSOCKWithTLS(t *testing.T) {
	s := newSetup(t)
	s.vsockOn()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	certificate := server.TLS.Certificates[0]
	server.Close()
	l, err := tls.Listen("tcp4", "127.0.0.1:0",
		&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		guest, err := l.Accept()
		if err == nil {
			_, err = io.Copy(guest, guest)
			guest.Close()
		}
		done <- err
	}()
	client := s.dial(fmt.Sprintf("vsock?port=%d", l.Addr().(*net.TCPAddr).Port))
	send(t, client, "echo")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(client); err != nil || string(got) != "echo" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestVSOCKErrors(t *testing.T) {
	s := newSetup(t)
	s.vsockOn()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // speaks no TLS
		if guest, err := l.Accept(); err == nil {
			_, _ = io.WriteString(guest, "hello\n")
			guest.Close()
		}
	}()
	for query, want := range map[string]string{
		"port=7":             "nothing listens on its vsock port 7",
		"port=8":             "does not answer on vsock port 8",
		"":                   `port="" is not a vsock port`,
		"port=0":             `port="0" is not a vsock port from 1 to 4294967294`,
		"port=4294967295":    "is not a vsock port",
		"port=x":             "is not a vsock port",
		"port=5&tls=perhaps": `tls="perhaps" is not true or false`,
		fmt.Sprintf("port=%d", l.Addr().(*net.TCPAddr).Port): "tls=false connects without",
	} {
		_, err := s.dialName("demo/", "vsock?"+query)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
		if strings.HasPrefix(query, "port=x") && !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v is no bad request", query, err)
		}
	}
}
