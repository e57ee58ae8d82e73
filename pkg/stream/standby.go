package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// StandbySubprotocol is ours, for ports of guests: a stream that is opened ahead of its use. Its server connects to the
// guest when the client asks, so that a new connection costs one round trip instead of the handshakes of three servers.
// Both ends send one byte before the guest's bytes: the client to ask for the guest, the server once it is reached. The
// client may send what is for the guest behind its question. A server that does not reach it says so with
// CloseNotReached; who wants to know the reason opens another stream.
//
// A client offers it beside Subprotocol. A server that does not know it takes Subprotocol, and has connected to the
// guest already.
const StandbySubprotocol = "standby.portforward.virtkit.io"

// standbyByte is what the client asks with, and the server answers.
const standbyByte = 1

// notReached is the reason with which a server ends a stream on standby whose guest it did not reach.
const notReached = "the guest was not reached"

// errStandby is a peer that does not speak the protocol.
var errStandby = errors.New("the peer of a stream on standby sent something else")

// OffersStandby reports whether a request's client knows StandbySubprotocol.
func OffersStandby(r *http.Request) bool {
	for _, offered := range websocket.Subprotocols(r) {
		if offered == StandbySubprotocol {
			return true
		}
	}
	return false
}

// Standby reports whether the stream is on standby: both ends have agreed on StandbySubprotocol.
func (c *Conn) Standby() bool { return c.Subprotocol() == StandbySubprotocol }

// Ask asks the server of a stream on standby for the guest; AwaitAnswer returns when it is reached.
func (c *Conn) Ask() error { return c.sendStandby() }

// AwaitAnswer waits until the guest is reached, nil, or the stream ends. It may be called before Ask.
func (c *Conn) AwaitAnswer() error { return c.readStandby() }

// AwaitAsk waits until the client of a stream on standby asks for the guest, at most for limit. An error is the end of
// the stream, or os.ErrDeadlineExceeded.
func (c *Conn) AwaitAsk(ctx context.Context, limit time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.CloseWithReason(CodeGoingAway, "the guest or its server ends") })
	defer stop()
	if err := c.readStandby(); err != nil {
		return err
	}
	return c.SetReadDeadline(time.Time{})
}

// Answer tells the client of a stream on standby that its guest is reached.
func (c *Conn) Answer() error { return c.sendStandby() }

// CloseNotReached tells the client of a stream on standby that its guest was not reached, and has got nothing of what
// the client has sent behind its question.
func (c *Conn) CloseNotReached() error { return c.CloseWithReason(CodeInternal, notReached) }

// NotReached reports whether err is the end of a stream on standby whose guest has got nothing.
func NotReached(err error) bool {
	var closed *CloseError
	return errors.As(err, &closed) && closed.Code == CodeInternal && closed.Reason == notReached
}

func (c *Conn) sendStandby() error {
	_, err := c.Write([]byte{standbyByte})
	return err
}

func (c *Conn) readStandby() error {
	var got [1]byte
	if _, err := c.Read(got[:]); err != nil {
		return err
	}
	if got[0] != standbyByte {
		return fmt.Errorf("%w: %#x", errStandby, got[0])
	}
	return nil
}
