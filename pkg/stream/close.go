package stream

import (
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"
)

// cut ends the connection of a peer that takes nothing, which no close frame would reach.
func (c *Conn) cut() {
	c.deadlineMu.Lock()
	c.stalled = true
	c.deadlineMu.Unlock()
	_ = c.ws.Close() // of no use any more
}

func (c *Conn) hasStalled() bool {
	c.deadlineMu.Lock()
	defer c.deadlineMu.Unlock()
	return c.stalled
}

// CloseWrite ends this side's direction: the peer's Read returns io.EOF after all that was written.
// What the peer still sends can be read until its own end.
func (c *Conn) CloseWrite() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.sendClose(websocket.CloseNormalClosure, "", time.Now().Add(c.opts.Stall))
}

func (c *Conn) sendClose(code int, reason string, deadline time.Time) error {
	message := websocket.FormatCloseMessage(sendableCode(code), truncateReason(reason))
	err := c.ws.WriteControl(websocket.CloseMessage, message, deadline)
	if err == nil || errors.Is(err, websocket.ErrCloseSent) {
		return nil
	}
	return fmt.Errorf("send close frame: %w", err)
}

// Close ends both directions normally. What the peer still sends is dropped; use CloseWrite and
// read to io.EOF to get it. It waits for the peer's close frame, for a second at most, so that what
// was written before arrives.
func (c *Conn) Close() error { return c.CloseWithReason(websocket.CloseNormalClosure, "") }

// CloseWithReason does what Close does, with a code and a text for the peer, whose Read returns them as a *CloseError
// unless the code is 1000. The text is cut at 123 bytes, the protocol's limit.
func (c *Conn) CloseWithReason(code int, reason string) error {
	c.closeOnce.Do(func() {
		close(c.closing)
		until := time.Now().Add(c.opts.Linger)
		c.deadlineMu.Lock()
		c.lingerUntil = until
		c.deadlineMu.Unlock()
		if err := c.sendClose(code, reason, until); err == nil {
			c.heard() // bounds a Read that waits, and the drain below
			c.drain()
		}
		c.closeErr = c.ws.Close()
		c.keepalive.Wait()
	})
	return c.closeErr
}

// drain drops what arrives until the peer has closed too or the lingering time is over.
func (c *Conn) drain() {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		if _, err := c.read(*buf); err != nil {
			return
		}
	}
}

func (c *Conn) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}
