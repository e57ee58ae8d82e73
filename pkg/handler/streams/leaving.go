package streams

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
)

const movedReason = "the guest has moved to another node; connect again"

// untilMoved ends a client's connection when the guest has moved, for streams that would not notice: the pod
// that the guest has left still takes what nobody reads. The function that it returns ends the wait.
func (s *Server) untilMoved(vmi types.NamespacedName, conn *stream.Conn) (end func()) {
	if s.Moved == nil {
		return func() {}
	}
	moved := s.Moved(vmi)
	ended := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-moved:
			_ = conn.CloseWithReason(stream.CodeGoingAway, movedReason) // a client that is gone already
		case <-ended:
		}
	})
	return func() {
		close(ended)
		wait.Wait()
	}
}

// leavingConn is a connection to a guest that may move to another node. Then its end is no end for the
// client, which may connect again and finds the guest there.
type leavingConn struct {
	*net.UnixConn
	leaving func() bool
}

func (s *Server) leavingConn(conn *net.UnixConn, pod types.UID) *leavingConn {
	return &leavingConn{UnixConn: conn, leaving: func() bool { return s.Leaving != nil && s.Leaving(pod) }}
}

func (c *leavingConn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	if (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && c.leaving() {
		err = &stream.CloseError{Code: stream.CodeGoingAway, Reason: movedReason}
	}
	return n, err
}
