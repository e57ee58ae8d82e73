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

// acceptAgain is the pause after a connection could not be accepted, for want of descriptors, say.
const acceptAgain = 100 * time.Millisecond

// ServeTCP forwards each connection that l accepts to a port of the guest, until ctx ends; then it closes l and the
// connections, and returns nil once all are gone. Whatever becomes of a connection, the next one is accepted. An error
// is one of l that does not pass.
func (f *Forwarder) ServeTCP(ctx context.Context, l net.Listener, port uint16) error {
	ctx, cancel := context.WithCancel(ctx)
	spare := f.standbys(ctx, port)
	defer spare.wait()
	defer cancel()
	return serve(ctx, l, func(ctx context.Context, local net.Conn) { f.forward(ctx, local, port, spare) })
}

func (f *Forwarder) standbys(ctx context.Context, port uint16) *standbys {
	if f.Standby == nil {
		return newStandbys(ctx, nil)
	}
	return newStandbys(ctx, func(ctx context.Context) (*stream.Conn, error) { return f.Standby(ctx, port) })
}

// serve accepts until ctx ends, and waits for what handle does with the connections.
func serve(ctx context.Context, l net.Listener, handle func(context.Context, net.Conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	var connections sync.WaitGroup
	defer connections.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			connections.Go(func() { handle(ctx, conn) })
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
		timer := time.NewTimer(acceptAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// forward serves one connection.
func (f *Forwarder) forward(ctx context.Context, local net.Conn, port uint16, spare *standbys) {
	e := Event{Protocol: TCP, Local: local.LocalAddr().String(), Client: local.RemoteAddr().String(), Port: port}
	socket := stream.AsSocket(local)
	var remote *stream.Conn
	var err error
	if tcp, ok := socket.(stream.Socket); ok {
		program := &early{Socket: tcp}
		defer program.wait()
		socket = program
		remote, err = spare.take(ctx, program)
	}
	if remote == nil && err == nil {
		remote, err = f.connect(ctx, e)
	}
	if err != nil {
		reset(socket)
		if ctx.Err() == nil {
			e.Kind, e.Err = Failed, err
			f.notify(e)
		}
		return
	}
	spare.fill()
	f.join(ctx, e, socket, remote)
}

// join copies until both directions have ended, and reports it.
func (f *Forwarder) join(ctx context.Context, e Event, local net.Conn, remote *stream.Conn) {
	e.Kind = Opened
	f.notify(e)
	e.Kind, e.Err = Closed, stream.Splice(ctx, local, remote)
	f.notify(e)
}

// reset closes a connection so that its peer sees an error and no empty answer.
func reset(conn net.Conn) {
	if socket, ok := conn.(interface{ CloseWithReason(int, string) error }); ok {
		_ = socket.CloseWithReason(stream.CodeInternal, "") // the peer has gone already
		return
	}
	_ = conn.Close()
}
