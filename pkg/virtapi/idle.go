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

// idleLife is how long a connection waits for its use. It is less than virt-handler waits for a request.
const idleLife = 8 * time.Second

// maxHosts is of how many virt-handlers TLS sessions and idle connections are kept.
const maxHosts = 4096

// hostKey is a virt-handler: that of a node, at an address.
type hostKey struct{ node, address string }

// host is a virt-handler. Each has TLS sessions of its own: all have one name, so that one cache would mix them up.
type host struct {
	tls *tls.Config
	// idle is a connection that is open and authenticated, and not used yet; making says that there will be one.
	idle   net.Conn
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
		if h.idle != nil {
			_ = h.idle.Close() // nothing was sent over it
			h.idle = nil
		}
	}
	clear(s.hosts)
}

// dial opens a stream at the virt-handler of a node, over the idle connection to it if there is one that still works.
func (s *streams) dial(ctx context.Context, target *url.URL, node string, header http.Header) (*stream.Conn, error) {
	s.mu.Lock()
	h := s.host(hostKey{node, target.Host})
	idle := h.idle
	h.idle = nil
	s.mu.Unlock()
	if idle != nil {
		conn, err := stream.DialOver(ctx, idle, target, header, stream.Options{})
		if err == nil || answered(err) || ctx.Err() != nil {
			return conn, err
		}
		// virt-handler has closed it meanwhile.
	}
	return stream.DialURL(ctx, target, h.tls, header, stream.Options{})
}

// prepare opens an idle connection in the background, after one to that virt-handler was used: who forwards ports opens
// many, one after the other, and a handshake takes a third of the time until a new one is there.
func (s *streams) prepare(key hostKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.host(key)
	if h.making || h.idle != nil || !s.beginLocked() {
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
			return // the next stream dials for itself, and returns its error
		}
		if s.draining || s.hosts[key] != h {
			_ = conn.Close() // nothing was sent over it
			return
		}
		h.idle = conn
		time.AfterFunc(s.idleLife, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if h.idle == conn {
				h.idle = nil
				_ = conn.Close() // nothing was sent over it
			}
		})
	}()
}
