package stream

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// Socket is a TCP connection as an end of a Splice. When the splice ends with an error, the socket's peer sees a
// reset, and so cannot take what has arrived for all there was; and a reset by the peer is never read as its end.
type Socket struct {
	*net.TCPConn
	sent *sent
}

// sent is the result of a Socket's writes.
type sent struct {
	mu    sync.Mutex // held while a write is under way
	reset error      // the write that found the connection reset
}

// Write writes to the socket.
func (s Socket) Write(p []byte) (int, error) {
	s.sent.mu.Lock()
	defer s.sent.mu.Unlock()
	n, err := s.TCPConn.Write(p)
	if errors.Is(err, syscall.ECONNRESET) {
		s.sent.reset = err
	}
	return n, err
}

// Read reads from the socket. The kernel reports a reset once: where a write got it, it calls what is read after
// that the end. A peer that has ended normally before it resets what is sent to it makes writes fail otherwise (EPIPE).
func (s Socket) Read(p []byte) (int, error) {
	n, err := s.TCPConn.Read(p)
	if errors.Is(err, io.EOF) && over(s.TCPConn) {
		// A write to a connection that is over returns at once.
		s.sent.mu.Lock()
		defer s.sent.mu.Unlock()
		if s.sent.reset != nil {
			err = s.sent.reset
		}
	}
	return n, err
}

// CloseWithReason closes the connection, with a reset unless the code is CodeNormal. TCP carries no reason.
func (s Socket) CloseWithReason(code int, _ string) error {
	if code != CodeNormal {
		_ = s.SetLinger(0) // fails where Close fails
	}
	return s.Close()
}

// AsSocket makes conn a Socket if it is TCP, and else returns it as it is.
func AsSocket(conn net.Conn) net.Conn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		return Socket{tcp, &sent{}}
	}
	return conn
}
