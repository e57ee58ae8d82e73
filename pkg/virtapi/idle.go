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

// idleLife is the time that a connection waits for its use. It is less than virt-handler waits for a request.
const idleLife = 8 * time.Second

// maxHandlers is the number of virt-handlers whose TLS sessions and idle connections are kept.
const maxHandlers = 4096

// handlerKey names a virt-handler: its node and its address.
type handlerKey struct{ node, address string }

// handlerConn has the TLS sessions of one virt-handler and an idle connection to it. All virt-handlers have one TLS
// name, so one cache of sessions would mix them up.
type handlerConn struct {
	tls *tls.Config
	// idle is a connection that is open and authenticated, and not used yet; making says that there will be one.
	idle   net.Conn
	making bool
}

// handler returns the handlerConn of a key; the caller holds s.mu.
func (s *streams) handler(key handlerKey) *handlerConn {
	h := s.handlers[key]
	if h == nil {
		if len(s.handlers) >= maxHandlers {
			s.dropHandlers() // pods come and go, and so do their addresses
		}
		h = &handlerConn{tls: s.tls(key.node)}
		h.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		s.handlers[key] = h
	}
	return h
}

// dropHandlers forgets all; the caller holds s.mu.
func (s *streams) dropHandlers() {
	for _, h := range s.handlers {
		if h.idle != nil {
			_ = h.idle.Close() // nothing was sent over it
			h.idle = nil
		}
	}
	clear(s.handlers)
}

// dial opens a stream at the virt-handler of a node, over an idle connection to it if one still works.
func (s *streams) dial(
	ctx context.Context, target *url.URL, node string, header http.Header, opts stream.Options,
) (*stream.Conn, error) {
	s.mu.Lock()
	h := s.handler(handlerKey{node, target.Host})
	idle := h.idle
	h.idle = nil
	s.mu.Unlock()
	if idle != nil {
		conn, err := stream.DialOver(ctx, idle, target, header, opts)
		if err == nil || answered(err) || ctx.Err() != nil {
			return conn, err
		}
		// virt-handler has closed it meanwhile.
	}
	return stream.DialURL(ctx, target, h.tls, header, opts)
}

// prepare opens an idle connection in the background, after one to that virt-handler was used: who forwards ports opens
// many, one after the other, and a handshake takes a third of the time until a new one is there.
func (s *streams) prepare(key handlerKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handler(key)
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
		if s.draining || s.handlers[key] != h {
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
