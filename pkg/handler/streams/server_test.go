package streams

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"log/slog"
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

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/rfb/rfbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pod = types.UID("0d9d4d5e-7a33-4b9c-8c0f-3a4f0f8d2b11")

// launcher answers requests with an error, or nil, and counts them.
type launcher struct {
	launcherpb.LauncherClient
	err   error
	calls []string
}

func (l *launcher) Pause(context.Context, *launcherpb.PauseRequest, ...grpc.CallOption,
) (*launcherpb.PauseResponse, error) {
	l.calls = append(l.calls, "pause")
	return &launcherpb.PauseResponse{}, l.err
}

func (l *launcher) Reset(context.Context, *launcherpb.ResetRequest, ...grpc.CallOption,
) (*launcherpb.ResetResponse, error) {
	l.calls = append(l.calls, "reset")
	return &launcherpb.ResetResponse{}, l.err
}

// setup is a node with one guest, whose sockets the test serves.
type setup struct {
	t        *testing.T
	run      string
	server   *Server
	http     *httptest.Server
	launcher *launcher
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // short, for sockets' paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &setup{t: t, run: podfs.RunPath(dir, pod), launcher: &launcher{}}
	if err := os.MkdirAll(s.run, 0o755); err != nil {
		t.Fatal(err)
	}
	s.server = &Server{
		PodsDir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Launcher: func(vmi types.NamespacedName) (launcherpb.LauncherClient, types.UID, error) {
			if vmi.Name != "demo" {
				return nil, "", fmt.Errorf("VirtualMachineInstance %s does not run here", vmi)
			}
			return s.launcher, pod, nil
		},
	}
	s.server.consoles.stall = time.Minute
	s.http = httptest.NewServer(s.server.Handler())
	t.Cleanup(func() { s.server.Close(); s.http.Close() })
	return s
}

// device listens where QEMU would, and gives the connections it gets.
func (s *setup) device(name string) <-chan net.Conn {
	s.t.Helper()
	l, err := net.Listen("unix", filepath.Join(s.run, name))
	if err != nil {
		s.t.Fatal(err)
	}
	conns := make(chan net.Conn, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	s.t.Cleanup(func() {
		l.Close()
		<-done
		for len(conns) > 0 {
			(<-conns).Close()
		}
	})
	return conns
}

func (s *setup) dialName(name, query string) (*stream.Conn, error) {
	return s.dialWith(name, query, stream.Options{})
}

func (s *setup) dialWith(name, query string, opts stream.Options) (*stream.Conn, error) {
	target, err := url.Parse(s.http.URL + "/v1/namespaces/default/virtualmachineinstances/" + name + query)
	if err != nil {
		return nil, err
	}
	return stream.DialURL(context.Background(), target, nil, nil, opts)
}

func (s *setup) dial(path string) *stream.Conn {
	s.t.Helper()
	c, err := s.dialName("demo/", path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

func take(t *testing.T, conns <-chan net.Conn) net.Conn {
	t.Helper()
	select {
	case c := <-conns:
		t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(time.Minute):
		t.Fatal("nobody connects to the device")
		return nil
	}
}

// wantRead reads exactly the text.
func wantRead(t *testing.T, r net.Conn, want string) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func send(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

func TestConsoleBothWays(t *testing.T) {
	s := newSetup(t)
	serial := s.device(names.SocketSerial)
	client := s.dial("console")
	guest := take(t, serial)
	send(t, client, "root\n")
	wantRead(t, guest, "root\n")
	send(t, guest, "password: ")
	wantRead(t, client, "password: ")
}

func TestConsoleIsTakenOver(t *testing.T) {
	s := newSetup(t)
	serial := s.device(names.SocketSerial)
	first := s.dial("console")
	guest := take(t, serial)
	send(t, guest, "one")
	wantRead(t, first, "one")

	second := s.dial("console")
	_, err := first.Read(make([]byte, 1))
	var closed *stream.CloseError
	if !errors.As(err, &closed) || !strings.Contains(closed.Reason, "taken over") {
		t.Fatalf("the first client read %v", err)
	}
	send(t, guest, "two") // on the connection that was there
	wantRead(t, second, "two")
	if len(serial) != 0 {
		t.Error("a second connection to the serial port was made")
	}
}

func TestConsoleIsJoined(t *testing.T) {
	s := newSetup(t)
	serial := s.device(names.SocketSerial)
	first := s.dial("console")
	guest := take(t, serial)
	second := s.dial("console?join=true")
	send(t, second, "b") // has joined once this arrives
	wantRead(t, guest, "b")
	send(t, first, "a")
	wantRead(t, guest, "a")
	send(t, guest, "to all")
	wantRead(t, first, "to all")
	wantRead(t, second, "to all")
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	send(t, guest, "to one")
	wantRead(t, first, "to one")
}

func TestConsoleReplaysTheLog(t *testing.T) {
	s := newSetup(t)
	if err := os.WriteFile(filepath.Join(s.run, names.LogSerial), []byte("booting... login: "), 0o600); err != nil {
		t.Fatal(err)
	}
	serial := s.device(names.SocketSerial)
	client := s.dial("console?tail=7")
	wantRead(t, client, "login: ")
	send(t, take(t, serial), "welcome")
	wantRead(t, client, "welcome")
}

// After a reset, what the guest has shown before does not count for who asks for the present life.
func TestConsoleReplaysThePresentLife(t *testing.T) {
	s := newSetup(t)
	press := func(err error) {
		t.Helper()
		s.launcher.err = err
		request, requestErr := http.NewRequest(http.MethodPut, s.http.URL+guestPath+"reset", nil)
		if requestErr != nil {
			t.Fatal(requestErr)
		}
		response, requestErr := http.DefaultClient.Do(request)
		if requestErr != nil {
			t.Fatal(requestErr)
		}
		response.Body.Close()
		if (response.StatusCode == http.StatusAccepted) != (err == nil) {
			t.Fatalf("reset: %s", response.Status)
		}
	}
	past := func(tail int64) string {
		t.Helper()
		run, err := podfs.OpenRun(s.server.PodsDir, pod)
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		text, err := s.server.tail(run, pod, tail, true)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	press(nil) // before it has said a word
	first := strings.Repeat("booting... ", 40) + "login: "
	s.writeLog(first)
	if got := past(7); got != "login: " {
		t.Errorf("the first life: %q", got)
	}
	press(errors.New("not now"))
	if got := past(7); got != "login: " {
		t.Errorf("after a reset that failed: %q", got)
	}
	press(nil)
	if got := past(100); got != "" {
		t.Errorf("after a reset: %q", got)
	}
	s.writeLog("SeaBIOS")
	serial := s.device(names.SocketSerial)
	client := s.dial("console?tail=100&sinceReset=true")
	wantRead(t, client, "SeaBIOS")
	send(t, take(t, serial), " login: ")
	wantRead(t, client, " login: ")
	beside := s.dial("console?join=true&tail=10")
	wantRead(t, beside, "n: SeaBIOS")
	// Cut since: all counts.
	if err := os.WriteFile(filepath.Join(s.run, names.LogSerial), []byte("later"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := past(100); got != "later" {
		t.Errorf("of a log that was cut: %q", got)
	}
}

func TestConsoleEndsWithTheGuest(t *testing.T) {
	s := newSetup(t)
	serial := s.device(names.SocketSerial)
	client := s.dial("console")
	guest := take(t, serial)
	last := strings.Repeat("x", 300<<10)
	var sent sync.WaitGroup
	sent.Go(func() { _, _ = io.WriteString(guest, last); guest.Close() })
	got, err := io.ReadAll(client)
	sent.Wait()
	if err != nil || string(got) != last {
		t.Errorf("read %d bytes, %v; want %d and a normal end", len(got), err, len(last))
	}
	again := s.dial("console") // the guest was reset, say
	send(t, take(t, serial), "again")
	wantRead(t, again, "again")
}

func TestLastClientLetsGoOfThePort(t *testing.T) {
	s := newSetup(t)
	serial := s.device(names.SocketSerial)
	client := s.dial("console")
	guest := take(t, serial)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the guest's side read %v, want EOF", err)
	}
}

func TestSlowReaderSlowsButLosesNothing(t *testing.T) {
	s := newSetup(t)
	serial := s.device(names.SocketSerial)
	client := s.dial("console")
	guest := take(t, serial)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB, more than any buffer on the way
	var sent sync.WaitGroup
	sent.Go(func() { _, _ = guest.Write(want); guest.Close() })
	got, err := io.ReadAll(io.MultiReader(&byteWise{client, 1000}, client))
	sent.Wait()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, %v; want %d", len(got), err, len(want))
	}
}

// byteWise reads the first bytes one by one, which is slow.
type byteWise struct {
	r    io.Reader
	left int
}

func (b *byteWise) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	b.left--
	return b.r.Read(p[:1])
}

func TestDeadReaderIsCutOff(t *testing.T) {
	t.Parallel() // it waits
	s := newSetup(t)
	s.server.consoles.stall = 8 * time.Second // the other client may be late, too, but not for so long
	serial := s.device(names.SocketSerial)
	_ = s.dial("console") // never reads
	guest := take(t, serial)
	live := s.dial("console?join=true")
	send(t, live, "?")
	wantRead(t, guest, "?")
	want := 16 << 20
	var sent sync.WaitGroup
	sent.Go(func() { _, _ = guest.Write(make([]byte, want)) })
	n, err := io.CopyN(io.Discard, live, int64(want))
	sent.Wait()
	if err != nil || n != int64(want) {
		t.Errorf("the live client got %d of %d bytes, %v", n, want, err)
	}
}

func TestErrorsBeforeTheUpgrade(t *testing.T) {
	s := newSetup(t)
	for _, test := range []struct {
		name, path string
		code       int32
		want       string
	}{
		{"demo/", "console", http.StatusBadRequest, "autoattachSerialConsole"},
		{"demo/", "vnc", http.StatusBadRequest, "autoattachGraphicsDevice"},
		{"other/", "console", http.StatusBadRequest, "does not run here"},
		{"demo/", "console?tail=x", http.StatusBadRequest, "tail"},
	} {
		_, err := s.dialName(test.name, test.path)
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != test.code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s%s: %v; want code %d with %q", test.name, test.path, err, test.code, test.want)
		}
	}
}

func TestHostileSocketIsRefused(t *testing.T) {
	s := newSetup(t)
	outside := filepath.Join(t.TempDir(), "o.sock")
	l, err := net.Listen("unix", outside)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink(outside, filepath.Join(s.run, names.SocketSerial)); err != nil {
		t.Fatal(err)
	}
	if c, err := s.dialName("demo/", "console"); err == nil {
		c.Close()
		t.Error("followed a link to a socket outside")
	}
}

func TestVNC(t *testing.T) {
	s := newSetup(t)
	displays := s.device(names.SocketVNC)
	first := s.dial("vnc")
	display := take(t, displays)
	send(t, display, "RFB 003.008\n")
	wantRead(t, first, "RFB 003.008\n")

	_, err := s.dialName("demo/", "vnc?preserveSession=true")
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("preserveSession while in use: %v", err)
	}
	second := s.dial("vnc")
	_, err = first.Read(make([]byte, 1))
	var closed *stream.CloseError
	if !errors.As(err, &closed) || !strings.Contains(closed.Reason, "taken over") {
		t.Errorf("the first client read %v", err)
	}
	send(t, take(t, displays), "RFB")
	wantRead(t, second, "RFB")
}

func TestCloseEndsStreams(t *testing.T) {
	s := newSetup(t)
	serial, displays := s.device(names.SocketSerial), s.device(names.SocketVNC)
	console, screen := s.dial("console"), s.dial("vnc")
	take(t, serial)
	take(t, displays)
	send(t, console, "x")
	var reading sync.WaitGroup
	for _, c := range []*stream.Conn{console, screen} {
		reading.Go(func() {
			_, err := c.Read(make([]byte, 1))
			var closed *stream.CloseError
			if !errors.As(err, &closed) || closed.Code != stream.CodeGoingAway {
				t.Errorf("read %v, want code %d", err, stream.CodeGoingAway)
			}
			c.Close()
		})
	}
	s.server.Close()
	reading.Wait()
}

func TestRequests(t *testing.T) {
	s := newSetup(t)
	put := func(path string) (int, string) {
		r, err := http.NewRequest(http.MethodPut, s.http.URL+"/v1/namespaces/default/virtualmachineinstances/"+path,
			nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	defer http.DefaultClient.CloseIdleConnections()
	if code, _ := put("demo/pause"); code != http.StatusAccepted {
		t.Errorf("pause: %d", code)
	}
	s.launcher.err = grpcstatus.Error(codes.FailedPrecondition, "the guest is not paused")
	if code, body := put("demo/reset"); code != http.StatusConflict || !strings.Contains(body, "not paused") {
		t.Errorf("reset: %d %s", code, body)
	}
	s.launcher.err = grpcstatus.Error(codes.Unavailable, "gone")
	if code, _ := put("demo/pause"); code != http.StatusServiceUnavailable {
		t.Errorf("pause of a dead launcher: %d", code)
	}
	if code, _ := put("other/pause"); code != http.StatusConflict {
		t.Errorf("pause of a stranger: %d", code)
	}
	if code, _ := put("demo/explode"); code != http.StatusNotFound {
		t.Errorf("unknown request: %d", code)
	}
	if got := strings.Join(s.launcher.calls, " "); got != "pause reset pause" {
		t.Errorf("calls: %s", got)
	}
}

func (l *launcher) Screenshot(context.Context, *launcherpb.ScreenshotRequest, ...grpc.CallOption,
) (grpc.ServerStreamingClient[launcherpb.ScreenshotPiece], error) {
	l.calls = append(l.calls, "screenshot")
	return &pictures{err: l.err, pieces: []string{"one ", "picture"}}, nil
}

// pictures is the stream of one screenshot.
type pictures struct {
	grpc.ClientStream
	err    error
	pieces []string
}

func (p *pictures) Recv() (*launcherpb.ScreenshotPiece, error) {
	if p.err != nil || len(p.pieces) == 0 {
		return nil, cmp.Or(p.err, io.EOF)
	}
	piece := p.pieces[0]
	p.pieces = p.pieces[1:]
	return &launcherpb.ScreenshotPiece{Png: []byte(piece)}, nil
}

func TestScreenshot(t *testing.T) {
	s := newSetup(t)
	displays := s.device(names.SocketVNC)
	get := func(query string) (int, string) {
		resp, err := http.Get(s.http.URL + "/v1/namespaces/default/virtualmachineinstances/demo/vnc/screenshot" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	defer http.DefaultClient.CloseIdleConnections()
	viewer := s.dial("vnc")
	take(t, displays)
	if code, body := get(""); code != http.StatusOK || body != "one picture" {
		t.Errorf("%d %q", code, body)
	}

	var woken sync.WaitGroup
	moves := make(chan image.Point, 8)
	woken.Go(func() {
		server := rfbtest.New(image.NewRGBA(image.Rect(0, 0, 8, 8)))
		server.Pointer = func(x, y int, _ byte) { moves <- image.Pt(x, y) }
		if err := server.Serve(take(t, displays)); err != nil {
			t.Error(err)
		}
	})
	if code, body := get("?moveCursor=true"); code != http.StatusOK || body != "one picture" {
		t.Errorf("%d %q", code, body)
	}
	woken.Wait()
	if len(moves) < 2 {
		t.Errorf("%d moves of the pointer", len(moves))
	}
	if _, err := viewer.Write([]byte("x")); err != nil {
		t.Errorf("the user's session has ended: %v", err)
	}

	s.launcher.err = grpcstatus.Error(codes.FailedPrecondition, "the guest does not run any more")
	if code, body := get(""); code != http.StatusConflict || !strings.Contains(body, "any more") {
		t.Errorf("%d %q", code, body)
	}
}
