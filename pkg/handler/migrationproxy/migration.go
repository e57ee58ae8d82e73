// Package migrationproxy connects the launchers of a migration. Launchers have no credentials and no network of their
// own for that: they talk to unix sockets, which the two virt-handlers connect over mutual TLS.
//
//	source node                                                      target node
//	launcher ─► migration-peer.sock   ─┐                          ┌─► libvirtd's socket   ─► launcher
//	            migration-memory.sock ─┼─► Outgoing ══TLS══► Server ─► migration-memory.sock
//	            migration-disks.sock  ─┤                          ├─► migration-disks.sock
//	          migration-handover.sock ─┘                          └─► migration-arrival.sock ─► launcher
//
// Each connection to a socket is a connection of its own all the way. It begins with an HTTP request that
// names the migration and the channel, and is answered with 101.
package migrationproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
)

// Channel is one kind of connection of a migration.
type Channel string

// The channels: between the two libvirtd, and to the QEMU that is to run the guest.
const (
	Peer   Channel = "peer"
	Memory Channel = "memory"
	Disks  Channel = "disks"
	// Handoff is between the two launchers.
	Handoff Channel = "handover"
	// Images is, too: for images that the guest has and that cannot be made anew.
	Images Channel = "seeds"
)

// sockets are a channel's two ends, as names in the launchers' run directories.
var sockets = map[Channel]struct{ from, to string }{
	Peer:   {names.SocketMigrationPeer, names.SocketLibvirt},
	Memory: {names.SocketMigrationMemory, names.SocketMigrationMemory},
	Disks:  {names.SocketMigrationDisks, names.SocketMigrationDisks},

	Images:  {names.SocketMigrationImages, names.SocketMigrationImagesIn},
	Handoff: {names.SocketMigrationHandoff, names.SocketMigrationHandoffIn},
}

const (
	protocol = "virtkit-migration"
	// guardsHeader has what the guest may say of itself on its networks.
	guardsHeader = "Virtkit-Guards"
	// MaxGuards bounds that, bytes.
	MaxGuards = 64 << 10
	// greeting bounds how long a connection may take to be set up.
	greeting = 10 * time.Second
	// maxRefusal bounds what is read of a refusal, bytes.
	maxRefusal = 4 << 10
)

func path(uid types.UID, channel Channel) string {
	return "/v1/migrations/" + url.PathEscape(string(uid)) + "/" + string(channel)
}

// Run is a launcher's run directory (podfs.Run).
type Run interface {
	Dial(ctx context.Context, socket string) (*net.UnixConn, error)
	Listen(socket string) (*net.UnixListener, error)
	Close() error
}

// Server takes the connections of guests that come to this node.
type Server struct {
	// Open opens the run directory of the launcher that waits for a migration from a node; an error when none does.
	// guards is what that node says of the guest's addresses (Listen), on channel Peer; "" where it says nothing.
	Open func(migration types.UID, from, guards string) (Run, error)
	// Peer is the node of the virt-handler that a connection's certificate is of; empty when it is no virt-handler's.
	Peer func(*tls.ConnectionState) string
	Log  *slog.Logger

	once   sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	active sync.WaitGroup
}

func (s *Server) init() {
	s.once.Do(func() { s.ctx, s.cancel = context.WithCancel(context.Background()) })
}

// Handler serves the connections, to virt-handlers whose certificates the authority has signed; it checks here which
// node they belong to.
func (s *Server) Handler() http.Handler {
	s.init()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/migrations/{uid}/{channel}", s.serve)
	return mux
}

// Close ends all connections and waits for them.
func (s *Server) Close() {
	s.init()
	s.cancel()
	s.active.Wait()
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	uid, channel := types.UID(r.PathValue("uid")), Channel(r.PathValue("channel"))
	socket, known := sockets[channel]
	if !known || r.Header.Get("Upgrade") != protocol {
		http.Error(w, "this is for virt-handlers that move a guest", http.StatusBadRequest)
		return
	}
	from := s.Peer(r.TLS)
	if from == "" {
		http.Error(w, "this is for virt-handlers that move a guest", http.StatusForbidden)
		return
	}
	s.active.Add(1)
	defer s.active.Done()
	guards := r.Header.Get(guardsHeader)
	if len(guards) > MaxGuards {
		http.Error(w, "the guest has too many addresses", http.StatusRequestHeaderFieldsTooLarge)
		return
	}
	run, err := s.Open(uid, from, guards)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer run.Close()
	local, err := run.Dial(r.Context(), socket.to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer local.Close()
	remote, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer remote.Close()
	_, err = io.WriteString(remote,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
	if err == nil {
		err = remote.SetDeadline(time.Time{})
	}
	if err == nil {
		err = stream.Splice(s.ctx, whole(withBuffer(remote, buffered.Reader), channel), whole(local, channel))
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		s.Log.Info("migration: connection ended", "migration", uid, "channel", channel, "err", err)
	}
}

// Dial opens a connection to another virt-handler (mutual TLS).
type Dial func(ctx context.Context, address string) (net.Conn, error)

// connect opens a channel of a migration at the virt-handler of its target.
func connect(
	ctx context.Context, dial Dial, address string, uid types.UID, channel Channel, guards string,
) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("connect to virt-handler at %s: %w", address, err)
	}
	reader, err := upgrade(conn, uid, channel, guards)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open channel %s at virt-handler %s: %w", channel, address, err)
	}
	return withBuffer(conn, reader), nil
}

func upgrade(conn net.Conn, uid types.UID, channel Channel, guards string) (*bufio.Reader, error) {
	if err := conn.SetDeadline(time.Now().Add(greeting)); err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, "https://"+names.VirtHandler+path(uid, channel), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	if channel == Peer && guards != "" { // the first channel of each migration
		request.Header.Set(guardsHeader, guards)
	}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		text, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
		return nil, errors.Join(fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text))), err,
			response.Body.Close())
	}
	return reader, conn.SetDeadline(time.Time{})
}

// bufferedConn is a connection of which something has been read already.
type bufferedConn struct {
	net.Conn
	first io.Reader // what was read; nil when it is used up
}

func withBuffer(conn net.Conn, reader *bufio.Reader) *bufferedConn {
	return &bufferedConn{Conn: conn, first: io.LimitReader(reader, int64(reader.Buffered()))}
}

func (c *bufferedConn) Read(p []byte) (int, error) {
	if c.first != nil {
		if n, err := c.first.Read(p); n > 0 || err != io.EOF {
			return n, err
		}
		c.first = nil
	}
	return c.Conn.Read(p)
}

// undivided is a connection whose directions end together.
type undivided struct{ net.Conn }

// whole returns a connection as its channel needs it. QEMU ends both directions at once, and one that has died says so
// by nothing else: a half of its connection must not be left to the other QEMU, which might wait for it.
func whole(conn net.Conn, channel Channel) io.ReadWriteCloser {
	if channel == Memory || channel == Disks {
		return undivided{conn}
	}
	return conn
}

// CloseWrite ends our direction.
func (c *bufferedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
