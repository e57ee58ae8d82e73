package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/virtkit/virtkit/pkg/stream"
)

const (
	// chunk is the most that is read from the guest at once, bytes.
	chunk = 32 << 10
	// queued is the number of chunks that may wait for a client before the guest has to.
	queued = 8
	// stall is the time that a client may take for one chunk. A slow client slows the guest's output down; one that
	// takes nothing for so long is cut off, so that nobody's sleeping laptop holds up a guest.
	stall = 10 * time.Second
)

// console shares the guest's serial port, whose socket takes one connection, between the clients of
// one VM. The guest's output goes to all of them and input comes from all.
type console struct {
	serial net.Conn
	log    *slog.Logger
	stall  time.Duration
	input  chan []byte
	closed chan struct{} // the serial port has ended

	ended   atomic.Bool // set under mu
	mu      sync.Mutex
	started bool // output is passed on since the first client has joined, so that it misses none
	clients map[*client]struct{}
	taker   int // the newest request that took over

	// users are the requests that have it, requests all that ever had; guarded by consoles.mu.
	users, requests int

	work sync.WaitGroup
}

// client is one attached websocket.
type client struct {
	conn    *stream.Conn
	request int
	out     chan []byte
	gone    chan struct{}

	once   sync.Once
	code   int
	reason string
}

// finish ends a client; the first reason counts.
func (c *client) finish(code int, reason string) {
	c.once.Do(func() {
		c.code, c.reason = code, reason
		close(c.gone)
	})
}

func newConsole(serial net.Conn, log *slog.Logger, stall time.Duration) *console {
	return &console{
		serial: serial, log: log, stall: stall, input: make(chan []byte), closed: make(chan struct{}),
		clients: map[*client]struct{}{},
	}
}

const takenOver = "the console was taken over by another client"

// join adds a client. Unless it attaches beside the others, it takes over from those whose requests
// came before its own, whatever order they arrive here in. replay, if not nil, gives what the client
// shall see first, from the log; it is read while no output is passed on.
func (b *console) join(conn *stream.Conn, request int, beside bool, who string, replay func() []byte) *client {
	c := &client{conn: conn, request: request, out: make(chan []byte, queued), gone: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended.Load():
		c.finish(stream.CodeGoingAway, "the console has just ended; connect again")
		return c
	case request < b.taker:
		c.finish(stream.CodePolicy, takenOver)
		return c
	case !beside:
		b.taker = request
		for other := range b.clients {
			if other.request < request {
				other.finish(stream.CodePolicy, takenOver+who)
			}
		}
	}
	if replay != nil {
		if !b.started {
			b.skip()
		}
		if first := replay(); len(first) > 0 {
			c.out <- first
		}
	}
	b.clients[c] = struct{}{}
	if !b.started {
		b.started = true
		b.work.Go(b.pumpOutput)
		b.work.Go(b.pumpInput)
	}
	return c
}

// skip drops what has arrived since the port was opened, since the log has it too.
func (b *console) skip() {
	if b.serial.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return
	}
	for buf := make([]byte, chunk); ; {
		if _, err := b.serial.Read(buf); err != nil {
			break // nothing left; a real error comes again
		}
	}
	_ = b.serial.SetReadDeadline(time.Time{}) // fails as the first one would have
}

// serve copies between a client that has joined and the guest until one of them ends.
func (b *console) serve(c *client) {
	var writer sync.WaitGroup
	writer.Go(func() { b.write(c) })
	b.read(c)
	writer.Wait()
	b.mu.Lock()
	delete(b.clients, c)
	b.mu.Unlock()
}

// finish ends all clients.
func (b *console) finish(code int, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended.Store(true)
	for c := range b.clients {
		c.finish(code, reason)
	}
}

func (b *console) read(c *client) {
	buf := make([]byte, chunk)
	for {
		n, err := c.conn.Read(buf)
		if n > 0 {
			data := append([]byte(nil), buf[:n]...)
			select {
			case b.input <- data:
			case <-b.closed:
			case <-c.gone:
			}
		}
		if err != nil {
			c.finish(stream.CodeNormal, "")
			return
		}
	}
}

// write sends what is queued for a client, and at the end the reason for it.
func (b *console) write(c *client) {
	send := func(data []byte) error {
		if err := c.conn.SetWriteDeadline(time.Now().Add(b.stall)); err != nil {
			return err
		}
		_, err := c.conn.Write(data)
		return err
	}
	for {
		select {
		case data := <-c.out:
			if err := send(data); err != nil {
				c.finish(stream.CodePolicy, fmt.Sprintf("the client took no output for %s", b.stall))
				c.conn.Close()
				return
			}
		case <-c.gone:
			for len(c.out) > 0 {
				if err := send(<-c.out); err != nil {
					break
				}
			}
			_ = c.conn.CloseWithReason(c.code, c.reason) // a client that is gone already
			return
		}
	}
}

// pumpOutput passes the guest's output on. It waits for each client to take it.
func (b *console) pumpOutput() {
	defer close(b.closed)
	for {
		data := make([]byte, chunk)
		n, err := b.serial.Read(data)
		if n > 0 {
			b.mu.Lock()
			clients := make([]*client, 0, len(b.clients))
			for c := range b.clients {
				clients = append(clients, c)
			}
			b.mu.Unlock()
			for _, c := range clients {
				select {
				case c.out <- data[:n:n]:
				case <-c.gone:
				}
			}
		}
		if err != nil {
			var moved *stream.CloseError
			if errors.As(err, &moved) {
				b.finish(moved.Code, moved.Reason)
				return
			}
			b.finish(stream.CodeNormal, "")
			return
		}
	}
}

func (b *console) pumpInput() {
	for {
		select {
		case <-b.closed:
			return
		case data := <-b.input:
			if _, err := b.serial.Write(data); err != nil {
				b.log.Debug("console input not taken", "err", err)
			}
		}
	}
}

// consoles are the open consoles of a node, by pod.
type consoles struct {
	log   *slog.Logger
	stall time.Duration

	mu      sync.Mutex
	open    map[string]*console
	opening map[string]chan struct{} // closed when the request that opens the pod's console has tried
}

// attach serves a client at the console of a pod and returns when it has gone. dial opens the serial
// port, accept the websocket; an error of either is returned before anything is served.
func (cs *consoles) attach(
	ctx context.Context, pod string, beside bool, who string,
	dial func(context.Context) (net.Conn, error), accept func() (*stream.Conn, error), replay func() []byte,
) error {
	b, request, err := cs.console(ctx, pod, dial)
	if err != nil {
		return err
	}
	defer cs.release(pod, b)
	conn, err := accept()
	if err != nil {
		return nil // accept has answered
	}
	b.serve(b.join(conn, request, beside, who, replay))
	return nil
}

// console returns the pod's open console, or opens it, and the request's place in the row of all. A serial port that
// does not answer holds up its own pod's clients only.
func (cs *consoles) console(
	ctx context.Context, pod string, dial func(context.Context) (net.Conn, error),
) (*console, int, error) {
	for {
		b, request, opening := cs.join(pod)
		switch {
		case b != nil:
			return b, request, nil
		case opening == nil:
			return cs.dial(ctx, pod, dial)
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-opening:
		}
	}
}

// join returns the pod's open console, or what is closed when another request has tried to open it. If it returns
// neither, the caller is to open it with dial.
func (cs *consoles) join(pod string) (b *console, request int, opening <-chan struct{}) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	// Not under its own lock, which is held while its log is read.
	if b := cs.open[pod]; b != nil && !b.ended.Load() {
		b.users++
		b.requests++
		return b, b.requests, nil
	}
	if opening, ok := cs.opening[pod]; ok {
		return nil, 0, opening
	}
	cs.opening[pod] = make(chan struct{})
	return nil, 0, nil
}

// dial opens the pod's console, which join has asked of the caller.
func (cs *consoles) dial(
	ctx context.Context, pod string, dial func(context.Context) (net.Conn, error),
) (*console, int, error) {
	serial, err := dial(ctx)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	close(cs.opening[pod])
	delete(cs.opening, pod)
	if err != nil {
		return nil, 0, err
	}
	b := newConsole(serial, cs.log, cs.stall)
	b.users, b.requests = 1, 1
	cs.open[pod] = b
	return b, 1, nil
}

// release ends a console that nobody uses any more.
func (cs *consoles) release(pod string, b *console) {
	cs.mu.Lock()
	b.users--
	last := b.users == 0
	if last {
		b.serial.Close() // before anybody opens it again
		if cs.open[pod] == b {
			delete(cs.open, pod)
		}
	}
	cs.mu.Unlock()
	if last {
		b.work.Wait()
	}
}

// finish ends all clients of all consoles.
func (cs *consoles) finish(code int, reason string) {
	cs.mu.Lock()
	open := slices.Collect(maps.Values(cs.open))
	cs.mu.Unlock()
	for _, b := range open {
		b.finish(code, reason)
	}
}
