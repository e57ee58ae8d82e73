package streams

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"
)

// A launcher whose serial port does not answer holds up nobody but those who want that one. Who waited for a request
// that gave up tries it again.
func TestSerialPortThatDoesNotAnswer(t *testing.T) {
	cs := &consoles{
		log: slog.New(slog.DiscardHandler), stall: time.Second,
		open: map[string]*console{}, opening: map[string]chan struct{}{},
	}
	dials := make(chan string, 2)
	hangs := func(ctx context.Context) (net.Conn, error) {
		dials <- "hangs"
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	answers := func(context.Context) (net.Conn, error) {
		dials <- "answers"
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		return ours, nil
	}
	first, giveUp := context.WithCancelCause(t.Context())
	gone := errors.New("the client has gone")
	failed := make(chan error, 1)
	go func() {
		_, _, err := cs.console(first, "wedged", hangs)
		failed <- err
	}()
	if got := <-dials; got != "hangs" {
		t.Fatalf("dialled %q", got)
	}

	well, _, err := cs.console(t.Context(), "well", answers)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.release("well", well)
	<-dials

	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := cs.console(short, "wedged", answers); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that went while it waited: %v", err)
	}

	opened := make(chan *console, 1)
	go func() {
		b, _, err := cs.console(t.Context(), "wedged", answers)
		if err != nil {
			t.Errorf("the second request: %v", err)
		}
		opened <- b
	}()
	giveUp(gone)
	if err := <-failed; !errors.Is(err, gone) {
		t.Errorf("the first request: %v", err)
	}
	b := <-opened
	if again, request, err := cs.console(t.Context(), "wedged", hangs); err != nil || again != b || request != 2 {
		t.Errorf("an open console: %p, request %d, %v; want %p", again, request, err, b)
	}
	cs.release("wedged", b)
	cs.release("wedged", b)
	if len(cs.open) != 1 || len(cs.opening) != 0 {
		t.Errorf("left open %v, opening %v", cs.open, cs.opening)
	}
}
