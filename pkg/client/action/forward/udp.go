package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/stream"
)

const (
	// idle is the default of Forwarder.Idle.
	idle = 90 * time.Second
	// maxClients is how many UDP clients one port serves at once; datagrams of more are lost.
	maxClients = 1024
	// waiting is how many datagrams of a client are kept while its stream opens or is full.
	waiting = 64
)

// ServeUDP forwards the datagrams that arrive at pc to a port of the guest, and the answers to where they came from,
// until ctx ends. Each client, known by its address, has a stream of its own, so that the guest can distinguish them
// too.
func (f *Forwarder) ServeUDP(ctx context.Context, pc net.PacketConn, port uint16) error {
	ctx, cancel := context.WithCancel(ctx)
	u := &udp{f: f, pc: pc, port: port, clients: map[string]*sender{}}
	defer u.work.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { pc.Close() })
	defer stop()
	buf := make([]byte, stream.BufferSize)
	for {
		n, from, err := pc.ReadFrom(buf)
		switch {
		case err == nil:
			u.receive(ctx, from, buf[:n])
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("receive on %s: %w", pc.LocalAddr(), err)
		}
		// Any other error is a datagram's, such as an answer that found nobody.
	}
}

// udp is one local port.
type udp struct {
	f    *Forwarder
	pc   net.PacketConn
	port uint16

	mu      sync.Mutex
	clients map[string]*sender
	work    sync.WaitGroup
}

// sender is a client, known by its address.
type sender struct {
	address net.Addr
	in      chan []byte
	// heard is when a datagram last came or went; guarded by udp.mu.
	heard time.Time
}

// receive hands a datagram to its client's stream, or loses it.
func (u *udp) receive(ctx context.Context, from net.Addr, datagram []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := u.clients[from.String()]
	if c == nil {
		if len(u.clients) >= maxClients {
			return
		}
		c = &sender{address: from, in: make(chan []byte, waiting)}
		u.clients[from.String()] = c
		u.work.Go(func() { u.serve(ctx, c) })
	}
	c.heard = time.Now()
	select {
	case c.in <- append([]byte(nil), datagram...):
	default:
	}
}

// serve carries one client's stream until it ends. A later packet of the client starts another one.
func (u *udp) serve(ctx context.Context, c *sender) {
	e := Event{Protocol: UDP, Local: u.pc.LocalAddr().String(), Client: c.address.String(), Port: u.port}
	conn, err := u.f.connect(ctx, e)
	if err == nil {
		e.Kind = Opened
		u.f.notify(e)
		err = u.copy(ctx, c, stream.Packets{Conn: conn})
		e.Kind = Closed
	} else {
		e.Kind = Failed
	}
	u.mu.Lock()
	delete(u.clients, c.address.String())
	u.mu.Unlock()
	if ctx.Err() == nil {
		e.Err = err
		u.f.notify(e)
	}
}

// copy passes datagrams both ways until the stream ends or nothing has come or gone for too long.
func (u *udp) copy(ctx context.Context, c *sender, conn stream.Packets) error {
	answers := make(chan error, 1)
	u.work.Go(func() { answers <- u.answer(c, conn) })
	limit := u.f.Idle
	if limit == 0 {
		limit = idle
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			_ = conn.Close()
			discard(answers)
			return nil
		case err := <-answers:
			_ = conn.Close()
			return err
		case datagram := <-c.in:
			if _, err := conn.Write(datagram); err != nil && !errors.Is(err, stream.ErrPacketTooLong) {
				_ = conn.Close() // the reading side knows why
				return <-answers
			}
		case <-timer.C:
			left := limit - time.Since(u.last(c))
			if left <= 0 {
				_ = conn.Close()
				discard(answers)
				return nil
			}
			timer.Reset(left)
		}
	}
}

func (u *udp) last(c *sender) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return c.heard
}

// answer passes on what the guest sends, until the stream ends.
func (u *udp) answer(c *sender, conn stream.Packets) error {
	buf := make([]byte, stream.BufferSize)
	for {
		n, err := conn.Read(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		u.mu.Lock()
		c.heard = time.Now()
		u.mu.Unlock()
		// A client that is gone loses its answer.
		_, _ = u.pc.WriteTo(buf[:n], c.address)
	}
}

// discard waits for the end of a stream that we have closed, which has nothing to say.
func discard(answers <-chan error) {
	if err := <-answers; err != nil {
		return
	}
}
