package stream

import (
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

var long = flag.Bool("long", false,
	"also keep a stream idle for ten minutes behind a proxy that cuts silent connections after one")

// impatient is a TCP proxy that cuts a connection on which either side has been silent for too long, as load balancers
// do.
func impatient(t *testing.T, target string, limit time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	pass := func(dst, src net.Conn) {
		defer dst.Close()
		defer src.Close()
		buf := make([]byte, 4<<10)
		for {
			if src.SetReadDeadline(time.Now().Add(limit)) != nil {
				return
			}
			n, err := src.Read(buf)
			if err != nil {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			work.Go(func() { pass(server, client) })
			work.Go(func() { pass(client, server) })
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String()
}

// idle leaves a stream behind such a proxy silent, then uses it.
func idle(t *testing.T, opts Options, limit, silence time.Duration) error {
	t.Helper()
	var served sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		defer served.Done()
		conn, err := Accept(w, r, opts)
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}))
	t.Cleanup(func() { served.Wait(); server.Close() })
	u := &url.URL{Scheme: "http", Host: impatient(t, server.Listener.Addr().String(), limit)}
	conn, err := DialURL(testContext(t), u, nil, nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	heard := make(chan error, 1)
	go func() { // reading is what answers pings
		_, err := io.ReadFull(conn, make([]byte, 5))
		heard <- err
	}()
	select {
	case err := <-heard:
		return err
	case <-time.After(silence):
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	return <-heard
}

func TestIdleStreamOutlivesImpatientProxy(t *testing.T) {
	if err := idle(t, Options{PingPeriod: 100 * time.Millisecond}, time.Second, 3*time.Second); err != nil {
		t.Error(err)
	}
	// Without pings it is cut, which shows that the proxy does what it is for.
	err := idle(t, Options{PingPeriod: time.Hour}, 200*time.Millisecond, time.Minute)
	var closed *CloseError
	if !errors.As(err, &closed) || closed.Code != CodeAbnormal {
		t.Errorf("without pings: %v", err)
	}
}

func TestIdleForTenMinutes(t *testing.T) {
	if !*long {
		t.Skip("go test ./pkg/stream -run TenMinutes -long -timeout 15m")
	}
	if err := idle(t, Options{}, time.Minute, 10*time.Minute); err != nil {
		t.Error(err)
	}
}
