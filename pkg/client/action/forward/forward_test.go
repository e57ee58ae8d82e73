package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest is a server between the client and a guest on this machine, whose ports are this machine's.
type guest struct {
	t    testing.TB
	http *httptest.Server
	// refuse, if not nil, answers instead.
	refuse func(resource, name string) error

	mu    sync.Mutex
	conns map[*stream.Conn]struct{}
	dials atomic.Int64
}

func newGuest(t testing.TB) *guest {
	t.Helper()
	g := &guest{t: t, conns: map[*stream.Conn]struct{}{}}
	var streams sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	g.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams.Add(1)
		defer streams.Done()
		protocol := r.URL.Query().Get("protocol")
		target, err := net.Dial(protocol, "127.0.0.1:"+r.URL.Query().Get("port"))
		if err != nil {
			stream.WriteStatus(w, status(409, stream.ReasonPortRefused))
			return
		}
		conn, err := stream.Accept(w, r, stream.Options{})
		if err != nil {
			target.Close()
			return
		}
		g.mu.Lock()
		g.conns[conn] = struct{}{}
		g.mu.Unlock()
		var end io.ReadWriteCloser = conn
		if protocol == UDP {
			end = stream.Packets{Conn: conn}
		}
		_ = stream.Splice(ctx, end, stream.AsSocket(target))
		g.mu.Lock()
		delete(g.conns, conn)
		g.mu.Unlock()
	}))
	t.Cleanup(func() { cancel(); streams.Wait(); g.http.Close() })
	return g
}

// cut breaks all streams, as a virt-api that is killed does.
func (g *guest) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.conns {
		go conn.CloseWithReason(stream.CodeGoingAway, "killed")
	}
}

func status(code int32, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason)}
}

func (g *guest) PortForward(ctx context.Context, resource, _, name string, port uint16, protocol string,
) (*stream.Conn, error) {
	g.dials.Add(1)
	if g.refuse != nil {
		if err := g.refuse(resource, name); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(fmt.Sprintf("%s?port=%d&protocol=%s", g.http.URL, port, protocol))
	if err != nil {
		return nil, err
	}
	return stream.DialURL(ctx, u, nil, nil, stream.Options{})
}

// echo serves connections in the guest: it sends back all that it gets, then ends.
func echo(t testing.TB) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
				_ = c.(*net.TCPConn).CloseWrite()
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// serving runs ports until the test ends, and gives their addresses.
func serving(t testing.TB, f *Forwarder, ports ...Port) []string {
	t.Helper()
	var locals []*Local
	var addresses []string
	for _, p := range ports {
		opened, err := p.Listen([]string{"127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		locals = append(locals, opened...)
		addresses = append(addresses, opened[0].Address)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, locals) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return addresses
}

// exchange sends text over a new connection and wants it back, with an end on both sides.
func exchange(address, text string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	// A connection that was reset meanwhile cannot be shut down any more; reading says why.
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) {
		return err
	}
	got, err := io.ReadAll(conn)
	if err == nil && string(got) != text {
		err = fmt.Errorf("got %q, want %q", got, text)
	}
	return err
}

func TestManyConnectionsAtOnce(t *testing.T) {
	g := newGuest(t)
	address := serving(t, &Forwarder{Dial: To(g, Target{})}, Port{TCP, 0, echo(t)})[0]
	errs := make(chan error, 500)
	var open sync.WaitGroup
	all := make(chan struct{})
	for i := range cap(errs) {
		open.Add(1)
		go func() {
			errs <- func() error {
				conn, err := net.Dial("tcp", address)
				open.Done()
				if err != nil {
					return err
				}
				defer conn.Close()
				<-all // 500 are open now
				want := fmt.Sprintf("connection %d", i)
				if _, err := io.WriteString(conn, want); err != nil {
					return err
				}
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					return err
				}
				got, err := io.ReadAll(conn)
				if err == nil && string(got) != want {
					err = fmt.Errorf("got %q, want %q", got, want)
				}
				return err
			}()
		}()
	}
	open.Wait()
	close(all)
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// KubeVirt's port-forward ends with its first failed connection.
func TestFailedDialEndsNothing(t *testing.T) {
	g := newGuest(t)
	var refusal atomic.Pointer[apierrors.StatusError]
	g.refuse = func(string, string) error {
		if err := refusal.Load(); err != nil {
			return err
		}
		return nil
	}
	failed := make(chan Event, 10)
	f := &Forwarder{
		Dial: To(g, Target{Namespace: "ns", Name: "vm", Instance: true}), Patience: time.Minute,
		Notify: func(e Event) {
			if e.Kind == Failed {
				failed <- e
			}
		},
	}
	address := serving(t, f, Port{TCP, 0, echo(t)})[0]
	for _, err := range []*apierrors.StatusError{
		{ErrStatus: status(409, stream.ReasonPortRefused)},
		apierrors.NewForbidden(schema.GroupResource{}, "vm", errors.New("no")),
		apierrors.NewNotFound(schema.GroupResource{}, "vm"),
	} {
		refusal.Store(err)
		if err := exchange(address, "x"); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a connection that was not made ends with %v, want a reset", err)
		}
		if e := <-failed; e.Err == nil {
			t.Error("failed without a reason")
		}
		refusal.Store(nil)
		if err := exchange(address, "still there"); err != nil {
			t.Fatalf("after a failed dial: %v", err)
		}
	}
}

func TestRestartIsWaitedFor(t *testing.T) {
	g := newGuest(t)
	left := atomic.Int64{}
	left.Store(3)
	g.refuse = func(string, string) error {
		switch left.Add(-1) {
		case 2:
			return apierrors.NewConflict(schema.GroupResource{}, "vm", errors.New("is not running"))
		case 1:
			return &apierrors.StatusError{ErrStatus: status(409, stream.ReasonGuestUnreachable)}
		case 0:
			return &url.Error{Op: "Get", URL: "x", Err: syscall.ECONNREFUSED}
		}
		return nil
	}
	waiting := make(chan Event, 10)
	f := &Forwarder{Dial: To(g, Target{Instance: true}), Patience: time.Minute, Notify: func(e Event) {
		if e.Kind == Waiting {
			waiting <- e
		}
	}}
	if err := exchange(serving(t, f, Port{TCP, 0, echo(t)})[0], "patience"); err != nil {
		t.Fatal(err)
	}
	if len(waiting) != 1 {
		t.Errorf("told %d times of waiting, want once", len(waiting))
	}
}

func TestImpatience(t *testing.T) {
	g := newGuest(t)
	g.refuse = func(string, string) error { return apierrors.NewServiceUnavailable("down") }
	f := &Forwarder{Dial: To(g, Target{Instance: true}), Patience: time.Millisecond}
	if err := exchange(serving(t, f, Port{TCP, 0, 1})[0], "x"); err == nil {
		t.Error("connected to nothing")
	}
}

// The stream's end is not taken for the guest's, and the port goes on.
func TestCutStreamResetsAndThePortStays(t *testing.T) {
	g := newGuest(t)
	address := serving(t, &Forwarder{Dial: To(g, Target{})}, Port{TCP, 0, echo(t)})[0]
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	g.cut()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %v, want a reset", err)
	}
	if err := exchange(address, "again"); err != nil {
		t.Error(err)
	}
}

// A connection whose program is gone leaves nothing behind, on either side.
func TestNothingIsLeftBehind(t *testing.T) {
	count := 10000
	if testing.Short() {
		count = 500
	}
	g := newGuest(t)
	address := serving(t, &Forwarder{Dial: To(g, Target{})}, Port{TCP, 0, echo(t)})[0]
	if err := exchange(address, "warm"); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
	work := make(chan int)
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := range work {
				if err := ending(address, i%4); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range count {
		if t.Failed() {
			break
		}
		work <- i
	}
	close(work)
	workers.Wait()
	deadline := time.Now().Add(30 * time.Second)
	for runtime.NumGoroutine() > goroutines+5 || openFiles(t) > descriptors+5 {
		if time.Now().After(deadline) {
			t.Fatalf("after %d connections %d goroutines of %d and %d descriptors of %d", count, runtime.NumGoroutine(),
				goroutines, openFiles(t), descriptors)
		}
		runtime.Gosched()
	}
}

// ending is a connection with one of several ends: by the program, by the guest, a reset, and none of it used.
func ending(address string, how int) error {
	if how == 0 {
		return exchange(address, "bytes")
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if how == 1 {
		return nil
	}
	if _, err := io.WriteString(conn, "bytes"); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		return err
	}
	if how == 2 {
		return conn.(*net.TCPConn).SetLinger(0)
	}
	return nil
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if errors.Is(err, os.ErrNotExist) {
		return 0 // not Linux
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestDatagrams(t *testing.T) {
	g := newGuest(t)
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		buf := make([]byte, stream.BufferSize)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(fmt.Appendf(nil, "%d from %s", n, from), from)
		}
	})
	t.Cleanup(func() { server.Close(); work.Wait() })
	closed := make(chan Event, 10)
	f := &Forwarder{Dial: To(g, Target{}), Idle: 300 * time.Millisecond, Notify: func(e Event) {
		if e.Kind == Closed {
			closed <- e
		}
	}}
	port := Port{UDP, 0, uint16(server.LocalAddr().(*net.UDPAddr).Port)}
	address := serving(t, f, port)[0]
	ask := func(conn net.Conn, size int) string {
		t.Helper()
		buf := make([]byte, 100)
		n, err := 0, os.ErrDeadlineExceeded
		for end := time.Now().Add(time.Minute); errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end); {
			// A stream may be idle, and so forgotten, before a slow machine answers: then it is asked again.
			if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			n, err = conn.Read(buf)
		}
		if err != nil {
			t.Fatal(err)
		}
		var got int
		var from string
		if _, err := fmt.Sscanf(string(buf[:n]), "%d from %s", &got, &from); err != nil || got != size {
			t.Fatalf("answer %q to %d bytes", buf[:n], size)
		}
		return from
	}
	one, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	first := ask(one, 3)
	if other := ask(two, 0); other == first {
		t.Error("the guest cannot tell two clients apart")
	}
	if e := <-closed; e.Err != nil {
		t.Errorf("an idle client's stream ended with %v", e.Err)
	}
	<-closed
	ask(one, 30000) // has another stream
	cut := make(chan Event, 10)
	patient := &Forwarder{Dial: To(g, Target{}), Notify: func(e Event) {
		if e.Kind == Closed {
			cut <- e
		}
	}}
	three, err := net.Dial("udp", serving(t, patient, port)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer three.Close()
	ask(three, 5)
	g.cut()
	if e := <-cut; e.Err == nil {
		t.Error("a cut stream has ended normally")
	}
	ask(three, 1)
}

func TestDialTriesTheInstanceOfANameWithoutVM(t *testing.T) {
	g := newGuest(t)
	port := echo(t)
	var asked []string
	g.refuse = func(resource, name string) error {
		asked = append(asked, resource)
		if resource == client.VMs {
			return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
		}
		return nil
	}
	conn, err := Dial(t.Context(), g, Target{Namespace: "ns", Name: "vmi"}, port, TCP)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if len(asked) != 2 {
		t.Errorf("asked for %q", asked)
	}
	g.refuse = func(resource, name string) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	_, err = Dial(t.Context(), g, Target{Namespace: "ns", Name: "none"}, port, TCP)
	if want := `connect to port ` + fmt.Sprint(port) +
		`/tcp of ns/none: virtualmachines "none" not found`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestParsePort(t *testing.T) {
	for text, want := range map[string]Port{
		"8080": {TCP, 8080, 8080}, "8080:80": {TCP, 8080, 80}, "udp/53": {UDP, 53, 53}, "UDP/5353:53": {UDP, 5353, 53},
		":22": {TCP, 0, 22}, "0:22": {TCP, 0, 22}, "tcp/:22": {TCP, 0, 22},
	} {
		if got, err := ParsePort(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "0", "x", "80:", "80:0", "sctp/80", "65536", "80:65536", "-1", "1:2:3", "/80", "udp/",
	} {
		if got, err := ParsePort(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestListenFindsOnePortForAllAddresses(t *testing.T) {
	locals, err := Port{TCP, 0, 22}.Listen([]string{"127.0.0.1", "127.0.0.2"})
	if err != nil {
		t.Skip(err) // no 127.0.0.2 but on Linux
	}
	if len(locals) != 2 || locals[0].Local == 0 || locals[0].Local != locals[1].Local {
		t.Errorf("got %+v", locals)
	}
	if _, err := (Port{TCP, locals[0].Local, 22}).Listen([]string{"127.0.0.1"}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the port is taken: %v", err)
	}
	for _, l := range locals {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
