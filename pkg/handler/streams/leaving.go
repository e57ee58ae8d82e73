package streams

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
)

// Why a guest does not answer on this node any more, in a client's error.
var (
	ErrMoved = &stream.CloseError{
		Code: stream.CodeGoingAway, Reason: "the guest has moved to another node; connect again",
	}
	ErrEnded = &stream.CloseError{Code: stream.CodeInternal, Reason: "the guest has ended"}
	// ErrUnfollowed says nothing about the guest: virt-handler ends, say.
	ErrUnfollowed = &stream.CloseError{
		Code: stream.CodeGoingAway, Reason: "virt-handler does not follow the guest any more; connect again",
	}
)

// life returns a context that ends when the guest of a VMI is gone from this node.
func (s *Server) life(vmi types.NamespacedName) context.Context {
	if s.Guest == nil {
		return context.Background()
	}
	return s.Guest(vmi)
}

// untilGone ends a client's connection when the guest's life ends, for streams that would not notice: the pod that a
// guest has left still takes what nobody reads, and so does that of one which was killed. The function that it returns
// ends the wait.
func untilGone(life context.Context, conn *stream.Conn) (end func()) {
	closed := make(chan struct{})
	stop := context.AfterFunc(life, func() {
		defer close(closed)
		reason := ErrUnfollowed
		errors.As(context.Cause(life), &reason)
		_ = conn.CloseWithReason(reason.Code, reason.Reason) // a client that is gone already
	})
	return func() {
		if !stop() {
			<-closed
		}
	}
}

// leavingConn is a connection to a guest that may move to another node. Then its end is no end for the
// client, which may connect again and finds the guest there.
type leavingConn struct {
	*net.UnixConn
	leaving func() bool
}

func (s *Server) leavingConn(conn *net.UnixConn, pod types.UID) *leavingConn {
	leaving := func() bool { return false }
	if s.Leaving != nil {
		leaving = s.Leaving(pod) // now, since later nobody may know the pod any more
	}
	return &leavingConn{UnixConn: conn, leaving: leaving}
}

func (c *leavingConn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	if (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && c.leaving() {
		err = ErrMoved
	}
	return n, err
}
