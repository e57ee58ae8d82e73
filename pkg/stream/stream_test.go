package stream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds what a test waits for.
const deadline = 20 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// serve starts a server that hands each accepted connection to handle.
func serve(t testing.TB, opts Options, handle func(*Conn)) *url.URL {
	t.Helper()
	var handlers sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		c, err := Accept(w, r, opts)
		if err != nil {
			return
		}
		defer c.Close()
		handle(c)
	}))
	t.Cleanup(func() { server.Close(); handlers.Wait() })
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func dial(t testing.TB, u *url.URL, opts Options) *Conn {
	t.Helper()
	c, err := DialURL(testContext(t), u, nil, nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// pair is a connected client and server side.
func pair(t testing.TB, client, server Options) (*Conn, *Conn) {
	t.Helper()
	for _, opts := range []*Options{&client, &server} {
		if opts.Linger == 0 {
			opts.Linger = 10 * time.Millisecond // a side that is not read from never answers a close
		}
	}
	accepted := make(chan *Conn)
	done := make(chan struct{})
	u := serve(t, server, func(c *Conn) { accepted <- c; <-done })
	c := dial(t, u, client)
	s := <-accepted
	t.Cleanup(func() { s.Close(); close(done) })
	return c, s
}

func random(t testing.TB, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	c, s := pair(t, Options{}, Options{})
	for _, step := range []struct {
		name     string
		from, to *Conn
	}{{"client to server", c, s}, {"server to client", s, c}} {
		want := random(t, 200_000)
		go step.from.Write(want)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(step.to, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: err %v, equal %v", step.name, err, bytes.Equal(got, want))
		}
	}
	if c.Subprotocol() != Subprotocol || s.Subprotocol() != Subprotocol {
		t.Errorf("subprotocols %q, %q", c.Subprotocol(), s.Subprotocol())
	}
	if c.RemoteAddr() == nil || c.LocalAddr() == nil {
		t.Error("no addresses")
	}
}

// The direction that ends first must not cut what is in flight the other way.
func TestHalfClose(t *testing.T) {
	for _, first := range []string{"client", "server"} {
		t.Run(first, func(t *testing.T) {
			a, b := pair(t, Options{}, Options{})
			if first == "server" {
				a, b = b, a
			}
			request, answer := random(t, 4<<20), random(t, 4<<20)
			var got []byte
			var err error
			var peer sync.WaitGroup
			peer.Go(func() {
				if got, err = io.ReadAll(b); err == nil {
					if _, err = b.Write(answer); err == nil {
						err = b.CloseWrite()
					}
				}
			})
			if _, err := a.Write(request); err != nil {
				t.Fatal(err)
			}
			if err := a.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("write after CloseWrite: %v", err)
			}
			back, readErr := io.ReadAll(a)
			peer.Wait()
			if err != nil || readErr != nil {
				t.Fatalf("peer: %v; read: %v", err, readErr)
			}
			if !bytes.Equal(got, request) || !bytes.Equal(back, answer) {
				t.Errorf("got %d and %d bytes, want %d and %d", len(got), len(back), len(request), len(answer))
			}
		})
	}
}

// chain is client ⇄ websocket ⇄ splice ⇄ websocket ⇄ splice ⇄ unix socket, as from virtctl through virt-api
// and virt-handler to a guest.
func chain(t *testing.T, guest func(*net.UnixConn)) *Conn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var guests sync.WaitGroup
	guests.Go(func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		guest(c)
	})
	t.Cleanup(func() { l.Close(); guests.Wait() })
	handler := serve(t, Options{}, func(c *Conn) {
		backend, err := net.Dial("unix", socket)
		if err != nil {
			c.CloseWithReason(CodeInternal, err.Error())
			return
		}
		_ = Splice(context.Background(), c, backend)
	})
	api := serve(t, Options{}, func(c *Conn) {
		backend, err := DialURL(context.Background(), handler, nil, nil, Options{})
		if err != nil {
			c.CloseWithReason(CodeInternal, err.Error())
			return
		}
		_ = Splice(context.Background(), c, backend)
	})
	return dial(t, api, Options{})
}

func TestSpliceHalfClose(t *testing.T) {
	request, answer := random(t, 4<<20), random(t, 4<<20)
	t.Run("client ends first", func(t *testing.T) {
		c := chain(t, func(g *net.UnixConn) {
			got, err := io.ReadAll(g)
			if err != nil || !bytes.Equal(got, request) {
				t.Errorf("guest got %d bytes: %v", len(got), err)
			}
			g.Write(answer)
		})
		go func() { c.Write(request); c.CloseWrite() }()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, answer) {
			t.Errorf("client got %d bytes: %v", len(got), err)
		}
	})
	t.Run("guest ends first", func(t *testing.T) {
		received := make(chan []byte, 1)
		c := chain(t, func(g *net.UnixConn) {
			g.Write(answer)
			g.CloseWrite()
			got, _ := io.ReadAll(g)
			received <- got
		})
		back, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(back, answer) {
			t.Errorf("client got %d bytes: %v", len(back), err)
		}
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		c.CloseWrite()
		if got := <-received; !bytes.Equal(got, request) {
			t.Errorf("guest got %d bytes", len(got))
		}
	})
}

// A reason given behind two splices arrives at the client.
func TestSplicePassesReason(t *testing.T) {
	const reason = "another client took over the console"
	handler := serve(t, Options{}, func(c *Conn) {
		c.Write([]byte("hello"))
		c.CloseWithReason(CodePolicy, reason)
	})
	api := serve(t, Options{}, func(c *Conn) {
		backend, err := DialURL(context.Background(), handler, nil, nil, Options{})
		if err != nil {
			t.Error(err)
			return
		}
		_ = Splice(context.Background(), c, backend)
	})
	c := dial(t, api, Options{})
	got, err := io.ReadAll(c)
	var closed *CloseError
	if !errors.As(err, &closed) || closed.Code != CodePolicy || closed.Reason != reason || string(got) != "hello" {
		t.Errorf("got %q, %#v", got, err)
	}
}

func TestSpliceContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	api := serve(t, Options{Linger: 10 * time.Millisecond}, func(c *Conn) {
		near, far := net.Pipe()
		defer far.Close()
		ended <- Splice(ctx, c, near)
	})
	c := dial(t, api, Options{})
	cancel()
	_, err := io.ReadAll(c)
	var closed *CloseError
	if !errors.As(err, &closed) || closed.Code != CodeGoingAway {
		t.Errorf("client: %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("splice: %v", err)
	}
}

// A client that vanishes without a close frame ends the splice and closes the backend.
func TestSpliceLostClient(t *testing.T) {
	ended := make(chan error, 1)
	near, far := net.Pipe()
	api := serve(t, Options{}, func(c *Conn) { ended <- Splice(context.Background(), c, near) })
	c := dial(t, api, Options{})
	c.ws.UnderlyingConn().Close()
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("backend: %v", err)
	}
	var closed *CloseError
	if err := <-ended; !errors.As(err, &closed) || closed.Code != CodeAbnormal {
		t.Errorf("splice: %v", err)
	}
}

func TestCloseCodes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		code   int
		reason string
		want   *CloseError // nil for io.EOF
	}{
		{"normal", CodeNormal, "", nil},
		{"policy", CodePolicy, "taken over", &CloseError{Code: CodePolicy, Reason: "taken over"}},
		{"codes that may not travel", CodeAbnormal, "x", &CloseError{Code: CodeInternal, Reason: "x"}},
		{
			"long reasons are cut between characters", CodeInternal, strings.Repeat("é", 100),
			&CloseError{Code: CodeInternal, Reason: strings.Repeat("é", 61)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, s := pair(t, Options{}, Options{})
			go s.CloseWithReason(tc.code, tc.reason)
			_, err := c.Read(make([]byte, 1))
			if tc.want == nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("got %v", err)
				}
				return
			}
			var closed *CloseError
			if !errors.As(err, &closed) || closed.Code != tc.want.Code || closed.Reason != tc.want.Reason {
				t.Errorf("got %#v", err)
			}
			if _, again := c.Read(make([]byte, 1)); !errors.Is(again, err) {
				t.Errorf("second read: %v", again)
			}
		})
	}
}

func TestReadAfterClose(t *testing.T) {
	c, _ := pair(t, Options{Linger: time.Millisecond}, Options{})
	got := make(chan error)
	go func() { _, err := c.Read(make([]byte, 1)); got <- err }()
	c.Close()
	if err := <-got; !errors.Is(err, net.ErrClosed) {
		t.Errorf("waiting read: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
}

func TestReadDeadline(t *testing.T) {
	c, _ := pair(t, Options{}, Options{})
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A peer that answers nothing, pings neither, is given up; one that answers pings is not.
func TestKeepalive(t *testing.T) {
	quick := Options{PingPeriod: 5 * time.Millisecond, Silence: 100 * time.Millisecond}
	t.Run("dead peer", func(t *testing.T) {
		c, _ := pair(t, quick, Options{}) // the server side is not read from: no pongs
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrPeerSilent) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("quiet peer", func(t *testing.T) {
		c, s := pair(t, quick, Options{})
		pongs := make(chan struct{}, 1)
		inner := c.ws.PongHandler()
		seen := 0
		c.ws.SetPongHandler(func(data string) error {
			if seen++; seen == 40 { // 200 ms: twice the silence allowed
				close(pongs)
			}
			return inner(data)
		})
		var readers sync.WaitGroup
		got := make(chan byte, 1)
		readers.Go(func() { s.Read(make([]byte, 1)) }) // answers the pings
		readers.Go(func() {
			b := make([]byte, 1)
			if _, err := c.Read(b); err != nil {
				t.Error(err)
			}
			got <- b[0]
		})
		<-pongs
		s.Write([]byte("x"))
		if b := <-got; b != 'x' {
			t.Errorf("got %q", b)
		}
		s.Close()
		readers.Wait()
	})
}

// Each side may wait for the other to read; pings must not make it a deadlock.
func TestFullBothWays(t *testing.T) {
	quick := Options{PingPeriod: time.Millisecond}
	c, s := pair(t, quick, quick)
	var echo sync.WaitGroup
	echo.Go(func() { io.Copy(s, s); s.CloseWrite() })
	want := random(t, 8<<20)
	go func() { c.Write(want); c.CloseWrite() }()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes: %v", len(got), err)
	}
	echo.Wait()
}

// What a foreign client may do: no subprotocol, an Origin, text and empty frames, a close without code.
func TestForeignClient(t *testing.T) {
	got := make(chan []byte, 1)
	u := serve(t, Options{}, func(c *Conn) {
		b, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
		}
		c.Write([]byte("bye"))
		got <- b
	})
	u.Scheme = "ws"
	ws, _, err := websocket.DefaultDialer.Dial(u.String(), http.Header{"Origin": {"https://elsewhere.example"}}) //nolint:bodyclose // an upgraded response has none
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if ws.Subprotocol() != "" {
		t.Errorf("subprotocol %q", ws.Subprotocol())
	}
	ws.WriteMessage(websocket.TextMessage, []byte("ignored"))
	ws.WriteMessage(websocket.BinaryMessage, nil)
	ws.WriteMessage(websocket.BinaryMessage, []byte("kept"))
	ws.WriteMessage(websocket.TextMessage, []byte("ignored"))
	ws.WriteControl(websocket.CloseMessage, nil, time.Time{})
	if kind, b, err := ws.ReadMessage(); err != nil || kind != websocket.BinaryMessage || string(b) != "bye" {
		t.Errorf("answer: %d %q %v", kind, b, err)
	}
	if b := <-got; string(b) != "kept" {
		t.Errorf("server got %q", b)
	}
}

func BenchmarkThroughput(b *testing.B) {
	c, s := pair(b, Options{}, Options{})
	chunk := make([]byte, BufferSize)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, BufferSize)
		for {
			if _, err := s.Read(buf); err != nil {
				return
			}
		}
	})
	for b.Loop() {
		if _, err := c.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	c.CloseWrite()
	reader.Wait()
}

// FuzzFrames feeds raw bytes to the server side after the handshake.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0x82, 0x81, 0, 0, 0, 0, 'x'})
	f.Add([]byte{0x81, 0x81, 0, 0, 0, 0, 'x', 0x88, 0x80, 0, 0, 0, 0})
	f.Add([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 'x'})
	f.Add([]byte{0x02, 0x81, 0, 0, 0, 0, 'x', 0x89, 0x80, 0, 0, 0, 0, 0x80, 0x80, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, frames []byte) {
		server := httptest.NewUnstartedServer(nil)
		done := make(chan struct{})
		server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(done)
			c, err := Accept(w, r, Options{Linger: time.Millisecond})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			n, err := io.Copy(io.Discard, c)
			if n > int64(len(frames)) {
				t.Errorf("%d bytes out of %d: %v", n, len(frames), err)
			}
		})
		server.Start()
		defer server.Close()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
		conn.Write(frames)
		conn.(*net.TCPConn).CloseWrite()
		<-done
	})
}
