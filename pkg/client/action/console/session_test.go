package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/virtkit/virtkit/pkg/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest is a console's far end: what the session writes can be read from in, what is written to out is read by the
// session.
type guest struct {
	in  *io.PipeReader
	out *io.PipeWriter

	toGuest   *io.PipeWriter
	fromGuest *io.PipeReader
}

func newGuest() *guest {
	g := &guest{}
	g.in, g.toGuest = io.Pipe()
	g.fromGuest, g.out = io.Pipe()
	return g
}

// Read, Write and Close are the session's end.
func (g *guest) Read(p []byte) (int, error)  { return g.fromGuest.Read(p) }
func (g *guest) Write(p []byte) (int, error) { return g.toGuest.Write(p) }
func (g *guest) Close() error {
	g.fromGuest.CloseWithError(io.ErrClosedPipe)
	return g.toGuest.Close()
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// dials hands out connections, then an error.
func dials(conns ...io.ReadWriteCloser) func(context.Context) (io.ReadWriteCloser, error) {
	n := 0
	return func(context.Context) (io.ReadWriteCloser, error) {
		if n == len(conns) {
			return nil, errNoMore
		}
		n++
		return conns[n-1], nil
	}
}

var errNoMore = errors.New("no more connections")

func run(t *testing.T, s *Session) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	return ended
}

// write has no t.Fatal, so that it can run beside the test.
func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write %q: %v", text, err)
	}
}

func readN(t *testing.T, r io.Reader, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(r, buf); err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	return string(buf)
}

func TestBytesGoBothWaysUntilTheGuestEnds(t *testing.T) {
	g, out := newGuest(), &buffer{}
	in, keys := io.Pipe()
	ended := run(t, &Session{Dial: dials(g), In: in, StopInput: func() { in.Close() }, Out: out})
	write(t, keys, "abc")
	if got := readN(t, g.in, 3); got != "abc" {
		t.Errorf("the guest got %q", got)
	}
	write(t, g.out, "last words")
	g.out.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if out.String() != "last words" {
		t.Errorf("got %q", out)
	}
}

func TestEscapeLeaves(t *testing.T) {
	g := newGuest()
	in, keys := io.Pipe()
	ended := run(t, &Session{Dial: dials(g), In: in, StopInput: func() { in.Close() }, Out: io.Discard, Escape: Escape})
	go write(t, keys, "ab\x1dcd")
	if got, err := io.ReadAll(g.in); string(got) != "ab" || err != nil {
		t.Errorf("the guest got %q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestPipeHasNoEscape(t *testing.T) {
	g := newGuest()
	ended := run(t, &Session{Dial: dials(g), In: strings.NewReader("a\x1d\x03b"), Out: io.Discard})
	if got := readN(t, g.in, 4); got != "a\x1d\x03b" {
		t.Errorf("the guest got %q", got)
	}
	g.out.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestIdleEndsAScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, out := newGuest(), &buffer{}
		ended := run(t, &Session{Dial: dials(g), In: strings.NewReader("x"), Out: out, Idle: 2 * time.Second})
		readN(t, g.in, 1)
		for range 3 {
			time.Sleep(time.Second) // the bubble's clock: the guest is never silent for long enough
			write(t, g.out, "x")
		}
		before := time.Now()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if out.String() != "xxx" || time.Since(before) != 2*time.Second {
			t.Errorf("got %q, then ended after %v", out, time.Since(before))
		}
	})
}

func TestNothingSentFollows(t *testing.T) {
	for what, in := range map[string]io.Reader{"no input": nil, "empty input": strings.NewReader("")} {
		synctest.Test(t, func(t *testing.T) {
			g, out := newGuest(), &buffer{}
			ended := run(t, &Session{Dial: dials(g), In: in, Out: out, Idle: time.Second})
			for range 3 {
				time.Sleep(time.Hour)
				write(t, g.out, "x")
			}
			g.out.Close()
			if err := <-ended; err != nil || out.String() != "xxx" {
				t.Errorf("%s: got %q, %v", what, out, err)
			}
		})
	}
}

func TestReconnect(t *testing.T) {
	first, second, third := newGuest(), newGuest(), newGuest()
	var events []Event
	out := &buffer{}
	ended := run(t, &Session{
		Dial: dials(first, second, third), Out: out, Reconnect: true,
		Notify: func(e Event, _ error) { events = append(events, e) },
	})
	write(t, first.out, "1")
	first.out.Close()
	write(t, second.out, "2")
	second.out.CloseWithError(&stream.CloseError{Code: stream.CodeAbnormal, Reason: "reset"})
	write(t, third.out, "3")
	third.out.CloseWithError(&stream.CloseError{Code: stream.CodePolicy, Reason: "taken over"})
	err := <-ended
	var closed *stream.CloseError
	if !errors.As(err, &closed) || closed.Reason != "taken over" {
		t.Errorf("got %v", err)
	}
	if out.String() != "123" {
		t.Errorf("got %q", out)
	}
	want := []Event{Connected, Lost, Connected, Lost, Connected}
	if len(events) != len(want) {
		t.Errorf("events are %v, want %v", events, want)
	}
}

func TestWithoutReconnectTheErrorIsReturned(t *testing.T) {
	g := newGuest()
	ended := run(t, &Session{Dial: dials(g), Out: io.Discard})
	g.out.CloseWithError(&stream.CloseError{Code: stream.CodeAbnormal, Reason: "reset"})
	var closed *stream.CloseError
	if err := <-ended; !errors.As(err, &closed) {
		t.Errorf("got %v", err)
	}
}

func TestDialFails(t *testing.T) {
	if err := <-run(t, &Session{Dial: dials(), Out: io.Discard}); !errors.Is(err, errNoMore) {
		t.Errorf("got %v", err)
	}
}

// While there is no connection a user at a terminal can leave, and what else is typed does not reach the guest later.
func TestLeaveWhileDialling(t *testing.T) {
	for _, key := range []string{"\x1d", "\x03"} {
		in, keys := io.Pipe()
		dialling := make(chan struct{})
		ended := run(t, &Session{
			Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
				close(dialling)
				<-ctx.Done()
				return nil, ctx.Err()
			},
			In: in, StopInput: func() { in.Close() }, Out: io.Discard, Escape: Escape,
		})
		<-dialling
		write(t, keys, "typed too early")
		write(t, keys, key)
		if err := <-ended; err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestCancel(t *testing.T) {
	g := newGuest()
	in, _ := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	connected := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- (&Session{
			Dial: dials(g), In: in, StopInput: func() { in.Close() }, Out: io.Discard, Reconnect: true,
			Notify: func(Event, error) { close(connected) },
		}).Run(ctx)
	}()
	<-connected
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestOutputFails(t *testing.T) {
	g := newGuest()
	ended := run(t, &Session{Dial: dials(g), Out: failingWriter{}, Reconnect: true})
	write(t, g.out, "x")
	if err := <-ended; !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

func TestPanickedRunsBeforeTheProgramEnds(t *testing.T) {
	restored := false
	s := &Session{Panicked: func() { restored = true }}
	defer func() {
		if p := recover(); p != "boom" || !restored {
			t.Errorf("recovered %v, restored %v", p, restored)
		}
	}()
	s.guarded(func() { panic("boom") })()
}
