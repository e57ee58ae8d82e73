// Package vnc brings a guest's screen to whoever shows it: a VNC viewer through a local port (Proxy), a browser (Web),
// or a file (Save). It knows no terminal. A guest has one VNC session at a time; opening another takes it over.
package vnc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/virtkit/virtkit/pkg/stream"
)

// Dial opens the guest's VNC server.
type Dial func(ctx context.Context) (*stream.Conn, error)

// Proxy joins viewers that connect to a local port to a guest's VNC server, one at a time.
type Proxy struct {
	Dial Dial
	// Keep waits for another viewer when one has gone; else Serve ends with the first.
	Keep bool
	// Ended, which may be nil, is called when Keep is set, with how the session of a viewer ended.
	Ended func(error)
}

// Serve takes viewers from l, which it closes, until ctx ends or, without Keep, the first has gone. first is a session
// opened before, which shows early that there is a screen; it may be nil. How the guest's side ended is the error: a
// *stream.CloseError when another client took over.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, first *stream.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var closing sync.Once
	closeListener := func() { closing.Do(func() { _ = l.Close() }) }
	defer closeListener()
	defer context.AfterFunc(ctx, closeListener)()
	if first != nil {
		defer first.Close()
	}
	for {
		viewer, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = viewer.Close()
			}
			return nil
		case err != nil:
			return fmt.Errorf("wait for a viewer: %w", err)
		}
		err = p.session(ctx, viewer, first)
		first = nil
		if ctx.Err() != nil {
			return nil
		}
		if !p.Keep {
			return err
		}
		if p.Ended != nil {
			p.Ended(err)
		}
	}
}

func (p *Proxy) session(ctx context.Context, viewer net.Conn, guest *stream.Conn) error {
	if guest == nil {
		var err error
		if guest, err = p.Dial(ctx); err != nil {
			return errors.Join(err, viewer.Close())
		}
	}
	return join(ctx, viewer, guest)
}

// whole is a session of RFB, which ends as a whole, for who shows a screen sends until it goes.
type whole struct{ conn *stream.Conn }

func (w whole) Read(p []byte) (int, error)  { return w.conn.Read(p) }
func (w whole) Write(p []byte) (int, error) { return w.conn.Write(p) }
func (w whole) Close() error                { return w.conn.Close() }

func (w whole) CloseWithReason(code int, reason string) error {
	return w.conn.CloseWithReason(code, reason)
}

// join copies until one side has ended. That a viewer goes away, however it does, is no error.
func join(ctx context.Context, viewer io.ReadWriteCloser, guest *stream.Conn) error {
	err := stream.Splice(ctx, viewer, whole{guest})
	var closed *stream.CloseError
	if errors.As(err, &closed) {
		return err
	}
	return nil
}
