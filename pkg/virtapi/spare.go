package virtapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/virtkit/virtkit/pkg/stream"
)

// spareLife is how long a connection waits for its use. It is less than virt-handler waits for a request.
const spareLife = 8 * time.Second

// maxHosts is of how many virt-handlers TLS sessions and spare connections are kept.
const maxHosts = 4096

// hostKey is a virt-handler: that of a node, at an address.
type hostKey struct{ node, address string }

// host is a virt-handler. Each has TLS sessions of its own: all have one name, so that one cache would mix them up.
type host struct {
	tls *tls.Config
	// spare is a connection that is open and authenticated, and not used yet; making says that there will be one.
	spare  net.Conn
	making bool
}

// host gives the one that has a key; s.mu is held.
func (s *streams) host(key hostKey) *host {
	h := s.hosts[key]
	if h == nil {
		if len(s.hosts) >= maxHosts {
			s.dropHosts() // pods come and go, and so do their addresses
		}
		h = &host{tls: s.tls(key.node)}
		h.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		s.hosts[key] = h
	}
	return h
}

// dropHosts forgets all; s.mu is held.
func (s *streams) dropHosts() {
	for _, h := range s.hosts {
		if h.spare != nil {
			_ = h.spare.Close() // nothing was sent over it
			h.spare = nil
		}
	}
	clear(s.hosts)
}

// dial opens a stream at the virt-handler of a node, over the spare connection to it if there is one that still works.
func (s *streams) dial(ctx context.Context, target *url.URL, node string, header http.Header) (*stream.Conn, error) {
	s.mu.Lock()
	h := s.host(hostKey{node, target.Host})
	spare := h.spare
	h.spare = nil
	s.mu.Unlock()
	if spare != nil {
		conn, err := stream.DialOver(ctx, spare, target, header, stream.Options{})
		if err == nil || answered(err) || ctx.Err() != nil {
			return conn, err
		}
		// virt-handler has closed it meanwhile.
	}
	return stream.DialURL(ctx, target, h.tls, header, stream.Options{})
}

// prepare opens a spare connection in the background, after one to that virt-handler was used: who forwards ports opens
// many, one after the other, and a handshake takes a third of the time until a new one is there.
func (s *streams) prepare(key hostKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.host(key)
	if h.making || h.spare != nil || !s.beginLocked() {
		return
	}
	h.making = true
	go func() {
		defer s.open.Done()
		ctx, cancel := context.WithTimeout(s.serving, dialTimeout)
		defer cancel()
		dialer := tls.Dialer{Config: h.tls}
		conn, err := dialer.DialContext(ctx, "tcp", key.address)
		s.mu.Lock()
		defer s.mu.Unlock()
		h.making = false
		if err != nil {
			return // the next stream dials for itself, and has an error to tell
		}
		if s.draining || s.hosts[key] != h {
			_ = conn.Close() // nothing was sent over it
			return
		}
		h.spare = conn
		time.AfterFunc(s.spareLife, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if h.spare == conn {
				h.spare = nil
				_ = conn.Close() // nothing was sent over it
			}
		})
	}()
}
