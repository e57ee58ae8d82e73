// Package console joins input and output of any kind to a guest's serial console. It knows no terminal: who has one
// passes its reader and writer, in raw mode, and the escape character to look for.
//
//	In ──► escape? ──► stream ──► guest
//	Out, log ◄──────── stream ◄── guest
package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/stream"
)

// Escape is Ctrl-], which ends a session at a terminal.
const Escape = 0x1d

// interrupt is Ctrl-C, which ends a session at a terminal while there is no connection.
const interrupt = 0x03

// Session is one user at one console. Run uses it up.
type Session struct {
	// Dial opens the console, waiting for the guest if it must; with Reconnect it is called again whenever
	// the stream ends.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// In is what goes to the guest; nil is nothing.
	In io.Reader
	// StopInput makes a Read of In that is under way return. Run calls it once at its end, then waits
	// for the Read. nil is right for readers that never block for long, such as files.
	StopInput func()
	// Out gets what the guest writes.
	Out io.Writer
	// Escape ends the session where it occurs in In; 0 passes all bytes, as a pipe needs.
	Escape byte
	// Idle ends the session when In has ended, something was sent, and the guest has then written
	// nothing for this long; 0 never does. With nothing sent the session follows the guest's output.
	Idle time.Duration
	// Reconnect dials again when the stream ends, unless another client took over.
	Reconnect bool
	// Notify, which may be nil, is called with Connected and Lost. It is called by Run's own goroutine.
	Notify func(Event, error)
	// Panicked is called before a panic in one of the session's goroutines ends the program, to put a
	// terminal right; nil is fine.
	Panicked func()
	// Left is set by Run when the user has left; else the stream has ended, or could not be opened.
	Left bool
}

// Event is something that happened to a session.
type Event int

const (
	// Connected is that the stream is open, also again.
	Connected Event = iota
	// Lost is that it ended and is dialled again; the error says how it ended, nil being its normal end.
	Lost
)

// errLeft is the user's wish to leave.
var errLeft = errors.New("left")

// Run dials and passes bytes until the stream ends, the user leaves, or ctx is cancelled. It returns nil for a stream
// that ended normally and for a user who left. Errors are those of Dial, of Out, and *stream.CloseError.
func (s *Session) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	in := &input{chunks: make(chan []byte), escape: s.Escape}
	var reader sync.WaitGroup
	if s.In != nil {
		reader.Go(s.guarded(func() { in.read(ctx, s.In) }))
	} else {
		close(in.chunks)
	}
	defer func() {
		cancel()
		if s.StopInput != nil {
			s.StopInput()
		}
		reader.Wait()
	}()
	for {
		conn, err := s.dial(ctx, in)
		if err != nil {
			return s.left(err)
		}
		s.notify(Connected, nil)
		err = s.attach(ctx, conn, in)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !s.Reconnect || final(err):
			return s.left(err)
		}
		s.notify(Lost, err)
	}
}

func (s *Session) left(err error) error {
	if s.Left = errors.Is(err, errLeft); s.Left {
		return nil
	}
	return err
}

// writeError is a failure of Out: reconnecting would not fix it.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

// final reports whether no new connection is to be made after err.
func final(err error) bool {
	var closed *stream.CloseError
	var write writeError
	return errors.Is(err, errLeft) || errors.As(err, &write) ||
		errors.As(err, &closed) && closed.Code == stream.CodePolicy
}

func (s *Session) notify(e Event, err error) {
	if s.Notify != nil {
		s.Notify(e, err)
	}
}

// guarded lets Panicked run before a panic of a goroutine ends the program.
func (s *Session) guarded(run func()) func() {
	return func() {
		defer func() {
			if p := recover(); p != nil {
				if s.Panicked != nil {
					s.Panicked()
				}
				panic(p)
			}
		}()
		run()
	}
}

// dial calls Dial, and meanwhile lets a user at a terminal leave; what else is typed is dropped. What comes from a
// pipe is kept for the connection.
func (s *Session) dial(ctx context.Context, in *input) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn io.ReadWriteCloser
		err  error
	}
	results := make(chan result, 1)
	var dialling sync.WaitGroup
	dialling.Go(s.guarded(func() {
		conn, err := s.Dial(ctx)
		results <- result{conn, err}
	}))
	defer dialling.Wait()
	var typed chan []byte
	if s.Escape != 0 {
		typed = in.chunks
	}
	for {
		select {
		case r := <-results:
			return r.conn, r.err
		case chunk, open := <-typed:
			if !open {
				in.end()
				typed = nil
			}
			if bytes.IndexByte(chunk, s.Escape) < 0 && bytes.IndexByte(chunk, interrupt) < 0 {
				continue
			}
			cancel()
			if r := <-results; r.err == nil {
				r.conn.Close()
			}
			return nil, errLeft
		}
	}
}

// attach passes bytes both ways until one side ends, and closes conn. It returns nil at the stream's normal end.
func (s *Session) attach(ctx context.Context, conn io.ReadWriteCloser, in *input) error {
	output := &output{out: s.Out, active: make(chan struct{}, 1), ended: make(chan error, 1)}
	var pump sync.WaitGroup
	pump.Go(s.guarded(func() { output.copy(conn) }))
	// Closing unblocks the pump, and a Write below.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		stop()
		conn.Close()
		pump.Wait()
	}()
	idle := time.NewTimer(time.Hour)
	idle.Stop()
	defer idle.Stop()
	for {
		if in.ended && in.sent && s.Idle > 0 {
			idle.Reset(s.Idle)
		}
		var chunks chan []byte
		if !in.ended {
			chunks = in.chunks
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-output.ended:
			return err
		case <-output.active:
		case <-idle.C:
			return errLeft
		case chunk, open := <-chunks:
			if !open {
				in.end()
				continue
			}
			if err := in.forward(chunk, conn); err != nil {
				if errors.Is(err, errLeft) {
					return err
				}
				// The reading side knows why.
				conn.Close()
				return <-output.ended
			}
		}
	}
}
