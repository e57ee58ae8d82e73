package stream

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

var buffers = sync.Pool{New: func() any {
	b := make([]byte, BufferSize)
	return &b
}}

// writeCloser is a connection whose directions end apart: *Conn, *net.TCPConn, *net.UnixConn, *tls.Conn.
type writeCloser interface{ CloseWrite() error }

// reasonCloser is a connection that can write to its peer why it ends.
type reasonCloser interface {
	CloseWithReason(code int, reason string) error
}

// Splice copies between a and b both ways until both directions have ended, then closes both. The end of
// one direction (io.EOF) is passed on with CloseWrite while the other goes on; a connection without
// CloseWrite is closed instead. An error ends everything: the other side is closed with the
// code and reason of a *CloseError, so a reason given at one end of a chain of splices arrives at the other.
// When ctx ends, both sides are closed with code 1001. A side that takes nothing for Stall is an error, too.
//
// It returns nil when both directions ended with io.EOF, else the first error.
func Splice(ctx context.Context, a, b io.ReadWriteCloser) error {
	return spliceWithin(ctx, a, b, Stall)
}

func spliceWithin(ctx context.Context, a, b io.ReadWriteCloser, stall time.Duration) error {
	s := &splice{stall: stall}
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cancelled)
		s.fail(a, b, &CloseError{Code: CodeGoingAway, Reason: "the server is shutting down"})
	})
	var relays sync.WaitGroup
	relays.Go(func() { s.relay(b, a, 0) })
	relays.Go(func() { s.relay(a, b, 1) })
	relays.Wait()
	if !stop() {
		<-cancelled
	}
	closeBoth(a, b, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil && s.err != nil {
		return context.Cause(ctx)
	}
	return s.err
}

type splice struct {
	stall  time.Duration // how long a write may take
	mu     sync.Mutex
	err    error
	failed bool // both sides are being closed with the reason
	// ended and lost say of each relay that its source has ended, and that its destination takes no more.
	ended, lost [2]bool
}

// relay copies from src to dst until src ends. When dst does not take any more, the rest is dropped, so
// that the end of src is still seen and what comes from dst still arrives; once nothing more comes from dst
// either, nobody is left to copy for. way numbers the relay.
func (s *splice) relay(dst, src io.ReadWriteCloser, way int) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	var lost error
	for {
		n, err := src.Read(*buf)
		// A datagram may be empty.
		if (n > 0 || err == nil) && lost == nil {
			if lost = s.write(dst, (*buf)[:n]); lost != nil {
				s.note(lost)
				if errors.Is(lost, ErrPeerStalled) {
					s.fail(dst, src, lost) // whoever sends may be there for ever
					return
				}
				if s.mark(&s.lost[way], &s.ended[1-way]) {
					s.fail(dst, src, lost)
					return
				}
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if lost == nil {
				s.endWrite(dst)
			}
			if s.mark(&s.ended[way], &s.lost[1-way]) {
				s.fail(dst, src, io.ErrClosedPipe) // the first error is why
			}
			return
		default:
			s.fail(dst, src, err)
			return
		}
	}
}

// write writes to one side, which may not take for ever. A Conn sees to that itself.
func (s *splice) write(dst io.Writer, p []byte) error {
	switch dst.(type) {
	case *Conn, Packets:
	default:
		if slow, ok := dst.(interface{ SetWriteDeadline(time.Time) error }); ok {
			if err := slow.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
				return err
			}
		}
	}
	_, err := dst.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrPeerStalled
	}
	return err
}

// mark sets a fact and reports whether the other one holds already.
func (s *splice) mark(fact, other *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	*fact = true
	return *other
}

func (s *splice) endWrite(dst io.ReadWriteCloser) {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if failed {
		// This end answers the reason that was sent to it; as a normal end it would overtake the reason
		// on its way to the other side.
		return
	}
	var err error
	if half, ok := dst.(writeCloser); ok {
		err = half.CloseWrite()
	} else {
		err = dst.Close()
	}
	if err != nil {
		s.note(err)
	}
}

func (s *splice) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *splice) fail(a, b io.ReadWriteCloser, err error) {
	s.note(err)
	s.mu.Lock()
	s.failed = true
	first := s.err
	s.mu.Unlock()
	closeBoth(a, b, first)
}

// closeBoth closes both sides, at the same time since each may wait for its peer.
func closeBoth(a, b io.Closer, err error) {
	var closes sync.WaitGroup
	for _, c := range []io.Closer{a, b} {
		closes.Go(func() {
			if reasoned, ok := c.(reasonCloser); ok && err != nil {
				code, text := closeReason(err)
				_ = reasoned.CloseWithReason(code, text) // the stream is over either way
				return
			}
			_ = c.Close()
		})
	}
	closes.Wait()
}
