package migrationproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dir is a launcher's run directory.
type dir string

func (d dir) Dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(string(d), socket))
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

func (d dir) Listen(socket string) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(string(d), socket), Net: "unix"})
}

func (dir) Close() error { return nil }

// anybody is a virt-handler to a server without TLS.
func anybody(*tls.ConnectionState) string { return "node1" }

// pair is a migration "m" from one directory to another, through two virt-handlers.
func pair(t *testing.T) (from, to dir) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	from, to = dir(t.TempDir()), dir(t.TempDir())
	server := &Server{Log: log, Peer: anybody, Open: func(uid types.UID, _ string) (Run, error) {
		if uid != "m" {
			return nil, errors.New("no launcher waits for " + string(uid))
		}
		return to, nil
	}}
	peer := httptest.NewServer(server.Handler())
	t.Cleanup(peer.Close)
	t.Cleanup(server.Close)
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	outgoing, err := Listen(from, dial, peer.Listener.Addr().String(), "m", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(outgoing.Close)
	return from, to
}

// What goes in at one end comes out at the other, both ways, with the ends of both directions.
func TestChannels(t *testing.T) {
	for channel, socket := range sockets {
		t.Run(string(channel), func(t *testing.T) {
			from, to := pair(t)
			if channel == Peer {
				// libvirtd's socket is deeper than the others.
				to.mkdir(t, filepath.Dir(names.SocketLibvirt))
			}
			listener, err := to.Listen(socket.to)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			request := bytes.Repeat([]byte("memory "), 1<<18)
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // until the other side ends its direction
			}()
			conn, err := from.Dial(t.Context(), socket.from)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() {
				_, _ = conn.Write(request)
				_ = conn.CloseWrite()
			}()
			answer, err := io.ReadAll(conn)
			if err != nil || !bytes.Equal(answer, request) {
				t.Errorf("%d bytes of %d came back, %v", len(answer), len(request), err)
			}
		})
	}
}

// A launcher whose counterpart does not listen notices at once.
func TestNobodyThere(t *testing.T) {
	from, _ := pair(t)
	conn, err := from.Dial(t.Context(), names.SocketMigrationMemory)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

func TestRefused(t *testing.T) {
	_, _ = pair(t)
	server := &Server{
		Log: slog.New(slog.DiscardHandler), Peer: anybody,
		Open: func(types.UID, string) (Run, error) { return nil, errors.New("nobody waits") },
	}
	peer := httptest.NewServer(server.Handler())
	defer peer.Close()
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	for _, channel := range []Channel{Peer, "other"} {
		conn, err := connect(t.Context(), dial, peer.Listener.Addr().String(), "../x", channel)
		if err == nil {
			conn.Close()
			t.Errorf("channel %s was opened", channel)
		}
	}
}

// Who shows no certificate of a virt-handler opens nothing, and whose it is decides which launcher is opened.
func TestPeer(t *testing.T) {
	for _, node := range []string{"", "node7"} {
		var from []string
		server := &Server{
			Log: slog.New(slog.DiscardHandler), Peer: func(*tls.ConnectionState) string { return node },
			Open: func(_ types.UID, peer string) (Run, error) {
				from = append(from, peer)
				return nil, errors.New("not from there")
			},
		}
		peer := httptest.NewServer(server.Handler())
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
		if conn, err := connect(t.Context(), dial, peer.Listener.Addr().String(), "m", Memory); err == nil {
			conn.Close()
			t.Errorf("%q opened the guest's memory", node)
		}
		peer.Close()
		if node == "" && len(from) > 0 || node != "" && !slices.Equal(from, []string{node}) {
			t.Errorf("%q was asked for as %q", node, from)
		}
	}
}

func (d dir) mkdir(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(string(d), name), 0o700); err != nil {
		t.Fatal(err)
	}
}
