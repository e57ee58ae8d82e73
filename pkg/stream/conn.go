// Package stream carries a byte stream over a websocket: consoles, VNC, forwarded ports. The client
// (virtctl, the dashboard) dials with a kubeconfig's credentials, virt-api and virt-handler accept,
// and Splice joins a websocket to another one, or to a socket of the guest.
//
// The wire protocol is KubeVirt's, so that its client and ours are interchangeable: an HTTP/1.1
// upgrade with the subprotocol plain.kubevirt.io (or none), then raw bytes in binary frames with no
// channel byte; frames of other types are ignored. Close code 1000 is the end of the stream, any other
// code is an error, see CloseError. Each direction ends on its own: CloseWrite sends the close frame
// and Read goes on until the peer has sent its own, so that nothing in flight is lost.
//
// Both ends ping, which keeps proxies from cutting an idle stream, and a Read that has waited
// for too long without a sign of life from the peer fails with ErrPeerSilent.
package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Subprotocol is the protocol that a client offers in Sec-WebSocket-Protocol, as KubeVirt's does.
const Subprotocol = "plain.kubevirt.io"

// BufferSize is the number of bytes that Splice copies at once. A reader with a buffer of this size sees the fewest
// system calls.
const BufferSize = 64 << 10

const (
	// pingPeriod and silence are the defaults of Options.
	pingPeriod = 20 * time.Second
	// Stall is the time for which the peer of a stream may take nothing of what is sent to it. It may well be a program
	// that somebody has stopped to look at, so it is long; it ends what would hold memory for ever.
	Stall   = 10 * time.Minute
	silence = 50 * time.Second
	// linger is the time that Close waits for the peer's close frame before it cuts the connection.
	linger = time.Second
	// frameBuffer is the size of a connection's read and pooled write buffer.
	frameBuffer = 32 << 10
)

// ErrPeerSilent is returned by Read when the peer has sent nothing, not even the answer to a ping,
// for too long.
var ErrPeerSilent = errors.New("the peer does not answer any more")

// ErrPeerStalled is returned by Write, and then Read, when the peer has taken nothing for too long, though it may
// answer.
var ErrPeerStalled = errors.New("the peer has taken nothing for too long")

// Options tune a connection; the zero value is for production.
type Options struct {
	// PingPeriod is the time between pings, 20 s unless set.
	PingPeriod time.Duration
	// Silence is the time for which a peer may send nothing while it is being read from, 50 s unless set.
	Silence time.Duration
	// Stall bounds one Write, 10 minutes unless set.
	Stall time.Duration
	// Linger is the time that Close waits for the peer to close too, 1 s unless set.
	Linger time.Duration
	// Subprotocol is the websocket's, KubeVirt's unless set.
	Subprotocol string
	// Standby has Dial offer, and Accept take, StandbySubprotocol too.
	Standby bool
}

// subprotocols are those that are offered or taken, the preferred one first.
func (o Options) subprotocols() []string {
	if o.Standby {
		return []string{StandbySubprotocol, o.Subprotocol}
	}
	return []string{o.Subprotocol}
}

func (o Options) withDefaults() Options {
	if o.PingPeriod <= 0 {
		o.PingPeriod = pingPeriod
	}
	if o.Silence <= 0 {
		o.Silence = silence
	}
	if o.Stall <= 0 {
		o.Stall = Stall
	}
	if o.Linger <= 0 {
		o.Linger = linger
	}
	if o.Subprotocol == "" {
		o.Subprotocol = Subprotocol
	}
	return o
}

// writeBuffers holds the buffers that frames are built in while a Write is under way, so that an
// idle stream keeps none.
var writeBuffers sync.Pool

// Conn is a websocket as a net.Conn with half-close. Read, Write and the closing methods may be
// called at the same time from different goroutines.
type Conn struct {
	ws   *websocket.Conn
	opts Options

	readMu  sync.Mutex
	reader  io.Reader // rest of the current message
	readErr error     // final

	writeMu sync.Mutex

	deadlineMu   sync.Mutex
	userDeadline time.Time // of reads, as set by SetReadDeadline
	writeBy      time.Time // of writes, as set by SetWriteDeadline
	stalled      bool      // the peer took nothing for too long
	lingerUntil  time.Time // set once Close has begun

	pongs chan string // payload of the newest ping not answered yet; only the reader sends

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	keepalive sync.WaitGroup
}

var _ net.Conn = (*Conn)(nil)

func newConn(ws *websocket.Conn, opts Options) *Conn {
	c := &Conn{ws: ws, opts: opts.withDefaults(), closing: make(chan struct{}), pongs: make(chan string, 1)}
	// The default handler would answer a close frame at once and so end our own direction too.
	ws.SetCloseHandler(func(int, string) error { return nil })
	ws.SetPongHandler(func(string) error { c.heard(); return nil })
	ws.SetPingHandler(func(data string) error {
		c.heard()
		// Only the newest ping needs an answer. The reader must not wait for room to write, or two
		// peers that both wait for the other to read would stand still.
		select {
		case <-c.pongs:
		default:
		}
		c.pongs <- data
		return nil
	})
	c.keepalive.Go(c.pingAndPong)
	return c
}

// pingAndPong answers pings, and sends one each period whatever else is sent: a peer that only listens
// has nothing else to show that it is there. A full socket is back-pressure, not death, until it has been
// full for too long.
func (c *Conn) pingAndPong() {
	ticker := time.NewTicker(c.opts.PingPeriod)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-c.closing:
			return
		case data := <-c.pongs:
			err = c.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(c.opts.Stall))
		case <-ticker.C:
			err = c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.opts.Stall))
		}
		if err != nil {
			return // our direction has ended; the reader finds out what is wrong, if anything
		}
	}
}

// heard moves the read deadline after a sign of life.
func (c *Conn) heard() {
	c.deadlineMu.Lock()
	defer c.deadlineMu.Unlock()
	deadline := c.lingerUntil
	if deadline.IsZero() {
		deadline = time.Now().Add(c.opts.Silence)
		if !c.userDeadline.IsZero() && c.userDeadline.Before(deadline) {
			deadline = c.userDeadline
		}
	}
	// An error means the connection is gone, which the read itself reports.
	_ = c.ws.SetReadDeadline(deadline)
}

// Read reads what the peer has sent. It returns io.EOF once the peer has ended its direction
// normally, a *CloseError when it closed with another code or the connection broke, ErrPeerSilent,
// os.ErrDeadlineExceeded, and net.ErrClosed after Close.
func (c *Conn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	return c.read(p)
}

func (c *Conn) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for c.readErr == nil {
		if c.reader == nil {
			if c.reader = c.next(); c.reader == nil {
				break
			}
		} else {
			c.heard()
		}
		n, err := c.reader.Read(p)
		switch {
		case err == io.EOF:
			c.reader = nil
		case err != nil:
			c.readErr = c.readError(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, c.readErr
}

// next waits for a binary message. It returns nil when none is to come, which readErr then explains.
func (c *Conn) next() io.Reader {
	for {
		c.heard()
		kind, reader, err := c.ws.NextReader()
		if err != nil {
			c.readErr = c.readError(err)
			return nil
		}
		if kind == websocket.BinaryMessage {
			return reader
		}
	}
}

// readError turns what the websocket reports into this package's errors.
func (c *Conn) readError(err error) error {
	var closed *websocket.CloseError
	if errors.As(err, &closed) {
		switch closed.Code {
		case websocket.CloseNormalClosure, websocket.CloseNoStatusReceived:
			return io.EOF
		}
		if c.isClosing() {
			return net.ErrClosed
		}
		return &CloseError{Code: closed.Code, Reason: closed.Text}
	}
	if c.isClosing() {
		return net.ErrClosed
	}
	if c.hasStalled() {
		return ErrPeerStalled
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.deadlineMu.Lock()
		defer c.deadlineMu.Unlock()
		if !c.userDeadline.IsZero() && !time.Now().Before(c.userDeadline) {
			return os.ErrDeadlineExceeded
		}
		return ErrPeerSilent
	}
	return &CloseError{Code: websocket.CloseAbnormalClosure, Reason: Cause(err), cause: err}
}

// Write sends p as one binary message. It returns net.ErrClosed after CloseWrite or Close, and ErrPeerStalled when the
// peer has not taken it in time; then the connection has been cut.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return c.write(p)
}

func (c *Conn) write(p []byte) (int, error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	limit := time.Now().Add(c.opts.Stall)
	c.deadlineMu.Lock()
	deadline := c.writeBy
	c.deadlineMu.Unlock()
	stalls := deadline.IsZero() || limit.Before(deadline)
	if stalls {
		deadline = limit
	}
	if err := c.ws.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	err := c.ws.WriteMessage(websocket.BinaryMessage, p)
	var timeout net.Error
	switch {
	case err == nil:
		return len(p), nil
	case errors.Is(err, websocket.ErrCloseSent):
		return 0, net.ErrClosed
	case stalls && errors.As(err, &timeout) && timeout.Timeout():
		c.cut()
		return 0, ErrPeerStalled
	}
	return 0, err
}

// Subprotocol returns the protocol that was agreed on: plain.kubevirt.io or nothing.
func (c *Conn) Subprotocol() string { return c.ws.Subprotocol() }

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.ws.LocalAddr() }

// RemoteAddr returns the address of the peer, which may be a proxy's.
func (c *Conn) RemoteAddr() net.Addr { return c.ws.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline makes Read fail at that time. Unlike a socket's, a Read that has failed so cannot be repeated: the
// connection cannot be read from any more.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.deadlineMu.Lock()
	c.userDeadline = t
	c.deadlineMu.Unlock()
	c.heard()
	return nil
}

// SetWriteDeadline makes Write fail at that time; the connection cannot be written to any more then.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.deadlineMu.Lock()
	defer c.deadlineMu.Unlock()
	c.writeBy = t
	return nil
}
