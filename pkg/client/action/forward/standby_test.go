package forward

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/stream"
)

// ahead serves streams on standby of a guest on this machine.
type ahead struct {
	t    testing.TB
	http *httptest.Server
	// plain serves them as a server that does not know them, silent never answers, and refuse reaches no guest.
	plain, silent, refuse bool
	// after is what the program must have said before it answers or refuses; away has it shut down then instead.
	after        string
	away         bool
	opened, used atomic.Int64

	mu    sync.Mutex
	conns map[*stream.Conn]struct{}
}

func newAhead(t testing.TB, port uint16) *ahead {
	t.Helper()
	a := &ahead{t: t, conns: map[*stream.Conn]struct{}{}}
	ctx, cancel := context.WithCancel(context.Background())
	var streams sync.WaitGroup
	a.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams.Add(1)
		defer streams.Done()
		conn, err := stream.Accept(w, r, stream.Options{Standby: !a.plain})
		if err != nil {
			return
		}
		a.mu.Lock()
		a.conns[conn] = struct{}{}
		a.mu.Unlock()
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.conns, conn)
		}()
		a.opened.Add(1)
		if !a.plain {
			err := conn.AwaitAsk(ctx, time.Minute)
			said := make([]byte, len(a.after))
			if err == nil {
				_, err = io.ReadFull(conn, said)
			}
			if err != nil || a.refuse {
				_ = conn.CloseNotReached()
				return
			}
			a.used.Add(1)
			if a.away {
				_ = conn.CloseWithReason(stream.CodeGoingAway, "the server is shutting down")
				return
			}
			if a.after != "" {
				if string(said) != a.after {
					t.Errorf("the program said %q, not %q", said, a.after)
				}
				if err := conn.Answer(); err != nil {
					t.Error(err)
				}
				_, _ = conn.Write(said) // the echo
				_ = conn.Close()
				return
			}
			if a.silent {
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
				return
			}
		}
		target, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil && !a.plain {
			err = conn.Answer()
		}
		if err != nil {
			t.Error(err)
			return
		}
		_ = stream.Splice(ctx, conn, stream.AsSocket(target))
	}))
	t.Cleanup(func() { cancel(); streams.Wait(); a.http.Close() })
	return a
}

func (a *ahead) open(ctx context.Context, _ uint16) (*stream.Conn, error) {
	u, err := url.Parse(a.http.URL)
	if err != nil {
		return nil, err
	}
	return stream.DialURL(ctx, u, nil, nil, stream.Options{Standby: true})
}

// forwarding serves a port of a guest, and gives its address and its streams on standby.
func (a *ahead) forwarding(g *guest, port uint16) (string, *standbys) {
	a.t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	f := &Forwarder{Dial: To(g, Target{}), Standby: a.open}
	ctx, cancel := context.WithCancel(context.Background())
	s, done := f.standbys(ctx, port), make(chan error, 1)
	go func() {
		done <- serve(ctx, l, func(ctx context.Context, conn net.Conn) { f.forward(ctx, conn, port, s) })
	}()
	a.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			a.t.Error(err)
		}
		s.wait()
	})
	return l.Addr().String(), s
}

// settled waits until no stream is being opened and so many are on standby.
func (s *standbys) settled(t testing.TB, want int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		ready, opening := len(s.ready), s.opening
		s.mu.Unlock()
		if ready == want && opening == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d are on standby, not %d, and %d are being opened", ready, want, opening)
		}
	}
}

// waiting waits until so many streams are open.
func (a *ahead) waiting(want int) {
	a.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		a.mu.Lock()
		open := len(a.conns)
		a.mu.Unlock()
		if open == want {
			return
		}
		if time.Now().After(end) {
			a.t.Fatalf("%d streams are open, not %d", open, want)
		}
	}
}

// quiet is the connection of a program that says nothing.
func quiet(t testing.TB) *early {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	program, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	e := &early{Socket: stream.AsSocket(program).(stream.Socket)}
	t.Cleanup(func() { program.Close(); e.wait() })
	return e
}

// TestFirstBytesGoWithTheQuestion: what a program says at once does not wait for the guest; one that was not reached
// gets it over another stream, and one that may have it does not get it again.
func TestFirstBytesGoWithTheQuestion(t *testing.T) {
	const text = "GET / HTTP/1.0"
	for name, tc := range map[string]struct {
		server func(*ahead)
		lost   bool
		// dials are the streams without standby, of which the first connection is one.
		dials int64
	}{
		"reached":      {server: func(*ahead) {}, dials: 1},
		"not reached":  {server: func(a *ahead) { a.refuse = true }, dials: 2},
		"nobody knows": {server: func(a *ahead) { a.away = true }, lost: true, dials: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, port := newGuest(t), echo(t)
			a := newAhead(t, port)
			a.after = text
			tc.server(a)
			address, s := a.forwarding(g, port)
			s.answerWithin = time.Minute
			if err := exchange(address, text); err != nil {
				t.Fatal(err)
			}
			s.settled(t, 1)
			if err := exchange(address, text); (err != nil) != tc.lost {
				t.Errorf("lost %t: %v", tc.lost, err)
			}
			if got := g.dials.Load(); got != tc.dials {
				t.Errorf("%d streams without standby, not %d", got, tc.dials)
			}
		})
	}
}

func TestNextConnectionsAreOnStandby(t *testing.T) {
	g, port := newGuest(t), echo(t)
	a := newAhead(t, port)
	address, s := a.forwarding(g, port)
	for n := range 5 {
		if err := exchange(address, fmt.Sprint("connection ", n)); err != nil {
			t.Fatal(err)
		}
		s.settled(t, 1)
	}
	if g.dials.Load() != 1 || a.used.Load() != 4 {
		t.Errorf("%d connections were opened, %d streams on standby used", g.dials.Load(), a.used.Load())
	}
}

// TestConnectionsWithoutStandby: whatever becomes of the streams on standby, a connection reaches the guest.
func TestConnectionsWithoutStandby(t *testing.T) {
	for name, tc := range map[string]struct {
		server func(*ahead)
		// cut cuts those on standby, of which there are so many after a connection.
		cut   bool
		ready int
		// opened are the streams at the end.
		opened int64
	}{
		"refused":    {server: func(a *ahead) { a.refuse = true }, ready: 1, opened: 3},
		"cut":        {server: func(*ahead) {}, cut: true, ready: 1, opened: 3},
		"old server": {server: func(a *ahead) { a.plain = true }, opened: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, port := newGuest(t), echo(t)
			a := newAhead(t, port)
			tc.server(a)
			address, s := a.forwarding(g, port)
			for n := range 3 {
				if err := exchange(address, fmt.Sprint("connection ", n)); err != nil {
					t.Fatal(err)
				}
				s.settled(t, tc.ready)
				if tc.cut {
					a.mu.Lock()
					for conn := range a.conns {
						go conn.CloseWithReason(stream.CodeGoingAway, "killed")
					}
					a.mu.Unlock()
					s.settled(t, 0)
				}
			}
			if g.dials.Load() != 3 || a.opened.Load() != tc.opened || a.used.Load() != 0 {
				t.Errorf("%d connections, %d streams opened, %d used", g.dials.Load(), a.opened.Load(), a.used.Load())
			}
		})
	}
}

func TestStandbyThatDoesNotAnswer(t *testing.T) {
	a := newAhead(t, 0)
	a.silent = true
	ctx, cancel := context.WithCancel(t.Context())
	s := newStandbys(ctx, func(ctx context.Context) (*stream.Conn, error) { return a.open(ctx, 0) })
	defer s.wait()
	defer cancel()
	s.answerWithin = time.Millisecond
	s.fill()
	a.waiting(1)
	for end := time.Now().Add(time.Minute); a.used.Load() == 0; time.Sleep(time.Millisecond) {
		if conn, err := s.take(ctx, quiet(t)); conn != nil || err != nil {
			t.Fatal("it has reached the guest")
		}
		if time.Now().After(end) {
			t.Fatal("nothing was asked")
		}
	}
}

// TestUnusedStandbysEnd: a port that nobody connects to keeps none.
func TestUnusedStandbysEnd(t *testing.T) {
	a := newAhead(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	s := newStandbys(ctx, func(ctx context.Context) (*stream.Conn, error) { return a.open(ctx, 0) })
	defer s.wait()
	defer cancel()
	s.life = time.Millisecond
	s.fill()
	for end := time.Now().Add(time.Minute); a.opened.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("none was opened")
		}
	}
	a.waiting(0)
	if conn, err := s.take(ctx, quiet(t)); conn != nil || err != nil || a.opened.Load() != 1 || a.used.Load() != 0 {
		t.Errorf("%d were opened, %d used", a.opened.Load(), a.used.Load())
	}
}

// TestStandbysOfABurst: who opens several connections at once has several ready, at most maxStandby.
func TestStandbysOfABurst(t *testing.T) {
	a := newAhead(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	s := newStandbys(ctx, func(ctx context.Context) (*stream.Conn, error) { return a.open(ctx, 0) })
	defer s.wait()
	defer cancel()
	for n := range 2 * maxStandby {
		s.fill()
		s.settled(t, min(n+1, maxStandby))
		s.missed()
	}
}
