package streams

import (
	"errors"
	"io"
	"net"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
)

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
		err = &stream.CloseError{Code: stream.CodeGoingAway, Reason: "the guest has moved to another node; connect again"}
	}
	return n, err
}
