package migrationproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
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
	server := &Server{Log: log, Peer: anybody, Open: func(uid types.UID, _, _ string) (Run, error) {
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
	outgoing, err := Listen(from, dial, peer.Listener.Addr().String(), "m", "", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(outgoing.Close)
	return from, to
}

// What goes in at one end comes out at the other, both ways, with the ends of both directions. Those of QEMU end
// together.
func TestChannels(t *testing.T) {
	for channel, socket := range sockets {
		t.Run(string(channel), func(t *testing.T) {
			here, there := connected(t, channel, socket.from, socket.to)
			request := bytes.Repeat([]byte("memory "), 1<<18)
			go func() {
				_, _ = io.CopyN(there, there, int64(len(request)))
				_ = there.Close()
			}()
			go func() {
				_, _ = here.Write(request)
				if channel != Memory && channel != Disks {
					_ = here.CloseWrite()
				}
			}()
			answer, err := io.ReadAll(here)
			if err != nil || !bytes.Equal(answer, request) {
				t.Errorf("%d bytes of %d came back, %v", len(answer), len(request), err)
			}
		})
	}
}

// connected is a connection of a channel, with both its ends.
func connected(t *testing.T, channel Channel, from, to string) (here, there *net.UnixConn) {
	t.Helper()
	source, target := pair(t)
	if channel == Peer {
		// libvirtd's socket is deeper than the others.
		target.mkdir(t, filepath.Dir(names.SocketLibvirt))
	}
	listener, err := target.Listen(to)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if here, err = source.Dial(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	if there, err = listener.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	for _, conn := range []*net.UnixConn{here, there} {
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	return here, there
}

// A QEMU that dies, whether it had read what was sent to it or not, leaves no half of a connection to the other one: it
// can neither read from it nor write to it, and nobody has to write first for that.
func TestDeadQEMULeavesNoHalf(t *testing.T) {
	for _, channel := range []Channel{Memory, Disks} {
		for name, sent := range map[string]int{"idle": 0, "in the middle": 1 << 16} {
			for _, dies := range []string{"target", "source"} {
				t.Run(fmt.Sprintf("%s, %s, %s", channel, name, dies), func(t *testing.T) {
					here, there := connected(t, channel, sockets[channel].from, sockets[channel].to)
					if dies == "source" {
						here, there = there, here
					}
					if sent > 0 {
						if _, err := here.Write(make([]byte, sent)); err != nil {
							t.Fatal(err)
						}
						if _, err := io.ReadFull(there, make([]byte, 1)); err != nil {
							t.Fatal(err)
						}
					}
					there.Close()
					if n, err := io.Copy(io.Discard, here); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%d bytes, %v", n, err)
					}
					hungUp(t, here)
				})
			}
		}
	}
}

// hungUp checks that both directions of a connection end.
func hungUp(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n, events := 0, []unix.PollFd{{}} // POLLHUP needs not be asked for
	if err := raw.Control(func(fd uintptr) {
		events[0].Fd = int32(fd)
		n, err = unix.Poll(events, int(time.Minute.Milliseconds()))
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil || n != 1 || events[0].Revents&unix.POLLHUP == 0 {
		t.Errorf("%d of %v, %v", n, events, err)
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
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
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
		Open: func(types.UID, string, string) (Run, error) { return nil, errors.New("nobody waits") },
	}
	peer := httptest.NewServer(server.Handler())
	defer peer.Close()
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	for _, channel := range []Channel{Peer, "other"} {
		conn, err := connect(t.Context(), dial, peer.Listener.Addr().String(), "../x", channel, "")
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
			Open: func(_ types.UID, peer, _ string) (Run, error) {
				from = append(from, peer)
				return nil, errors.New("not from there")
			},
		}
		peer := httptest.NewServer(server.Handler())
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
		if conn, err := connect(t.Context(), dial, peer.Listener.Addr().String(), "m", Memory, ""); err == nil {
			conn.Close()
			t.Errorf("%q opened the guest's memory", node)
		}
		peer.Close()
		if node == "" && len(from) > 0 || node != "" && !slices.Equal(from, []string{node}) {
			t.Errorf("%q was asked for as %q", node, from)
		}
	}
}

// What a node says of a guest's addresses comes with the first channel, and with no other; too much of it is refused.
func TestGuards(t *testing.T) {
	var got []string
	server := &Server{
		Log: slog.New(slog.DiscardHandler), Peer: anybody,
		Open: func(_ types.UID, _, guards string) (Run, error) {
			got = append(got, guards)
			return nil, errors.New("enough")
		},
	}
	peer := httptest.NewServer(server.Handler())
	defer peer.Close()
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	const said = `{"red":{"ipv4":true,"addresses":["192.0.2.7"]}}`
	for _, c := range []struct {
		channel Channel
		guards  string
	}{{Peer, said}, {Memory, said}, {Peer, ""}, {Peer, strings.Repeat("x", MaxGuards+1)}} {
		conn, err := connect(t.Context(), dial, peer.Listener.Addr().String(), "m", c.channel, c.guards)
		if err == nil {
			conn.Close()
			t.Errorf("channel %s was opened", c.channel)
		}
	}
	if want := []string{said, "", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func (d dir) mkdir(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(string(d), name), 0o700); err != nil {
		t.Fatal(err)
	}
}
