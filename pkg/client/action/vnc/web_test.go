package vnc

import (
	"context"
	"image"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/virtkit/virtkit/pkg/client/action/vnc/novnc"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/rfb"
	"github.com/virtkit/virtkit/pkg/stream/rfb/rfbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guestServer is a server of guests' screens, and how to dial it.
func guestServer(t *testing.T) Dial {
	t.Helper()
	var serving sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		conn, err := stream.Accept(w, r, stream.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		_ = rfbtest.New(image.NewRGBA(image.Rect(0, 0, 6, 4))).Serve(conn)
	}))
	t.Cleanup(func() { serving.Wait(); server.Close() })
	return func(ctx context.Context) (*stream.Conn, error) {
		request, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			return nil, err
		}
		return stream.DialURL(ctx, request.URL, nil, nil, stream.Options{})
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWeb(t *testing.T) {
	l := listen(t)
	address := l.Addr().String()
	w := &Web{
		Dial: guestServer(t), Machine: "shop/demo", Token: "the-token", Session: "the-session",
		NoVNC: fstest.MapFS{"core/rfb.js": {Data: []byte("novnc")}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.Serve(ctx, l, nil) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}()

	get := func(path string, header http.Header) (int, http.Header, string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != nil {
			r.Header = header
		}
		if host := r.Header.Get("Host"); host != "" {
			r.Host = host
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(body)
	}
	for _, path := range []string{
		"/", "/?token=", "/?token=guess", "/page/page.js?token=the-token", w.base(),
		w.base() + "page/page.js?token=the-token", w.base() + "novnc/core/rfb.js", w.base() + "machine",
		w.base() + "screen",
	} {
		if code, _, _ := get(path, nil); code != http.StatusForbidden {
			t.Errorf("%s without a token: %d", path, code)
		}
	}
	for host, want := range map[string]int{"evil.example": 421, "127.0.0.1": 421, "127.0.0.1:1": 421} {
		if code, _, _ := get("/?token=the-token", http.Header{"Host": {host}}); code != want {
			t.Errorf("host %s: %d", host, code)
		}
	}
	if code, _, _ := get("/?token=the-token",
		http.Header{"Origin": {"http://evil.example"}}); code != http.StatusForbidden {
		t.Errorf("another origin: %d", code)
	}

	code, header, body := get("/?token=the-token", nil)
	cookie := header.Get("Set-Cookie")
	if code != http.StatusOK || !strings.Contains(body, "page.js") ||
		!strings.Contains(cookie, "HttpOnly; SameSite=Strict") {
		t.Fatalf("%d %q %s", code, cookie, body)
	}
	if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		!strings.Contains(policy, "ws://"+address) {
		t.Errorf("policy %s", policy)
	}
	if code, _, _ := get("/?token=the-token", nil); code != http.StatusForbidden {
		t.Errorf("the token works twice: %d", code)
	}
	cookie, _, _ = strings.Cut(cookie, ";")
	for path, want := range map[string]string{
		"":                  "page.js",
		"page/page.js":      "RFB",
		"page/page.css":     "body",
		"novnc/core/rfb.js": "novnc",
		"machine":           "shop/demo",
	} {
		if code, _, body := get(w.base()+path, http.Header{"Cookie": {cookie}}); code != http.StatusOK ||
			!strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}

	dial := func(origin string) (*websocket.Conn, int) {
		ws, resp, err := websocket.DefaultDialer.Dial("ws://"+address+w.base()+"screen", http.Header{"Cookie": {cookie}, "Origin": {origin}}) //nolint:bodyclose // the websocket library has
		if err != nil {
			return nil, resp.StatusCode
		}
		return ws, resp.StatusCode
	}
	if _, code := dial("http://evil.example"); code != http.StatusForbidden {
		t.Errorf("a websocket of another origin: %d", code)
	}
	ws, code := dial("http://" + address)
	if code != http.StatusSwitchingProtocols {
		t.Fatalf("websocket: %d", code)
	}
	defer ws.Close()
	if _, data, err := ws.ReadMessage(); err != nil || string(data) != "RFB 003.008\n" {
		t.Errorf("%q %v", data, err)
	}
}

// TestWebCookieStaysWithItsPort opens the page in a browser that then goes to another port of the same address, as
// another user's server may be: it is sent no cookie, not for the page's names either.
func TestWebCookieStaysWithItsPort(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Values("Cookie")...)
	}))
	defer other.Close()
	l := listen(t)
	address := l.Addr().String()
	w := &Web{
		Dial: guestServer(t), Machine: "shop/demo", Token: "the-token", Session: "the-session", NoVNC: fstest.MapFS{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.Serve(ctx, l, nil) }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	defer func() {
		browser.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	get := func(url string) (int, string) {
		t.Helper()
		resp, err := browser.Get(url)
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
	if code, body := get("http://" + address + "/?token=the-token"); code != http.StatusOK ||
		!strings.Contains(body, `src="`+w.base()+`page/page.js"`) {
		t.Fatalf("%d %s", code, body)
	}
	for _, path := range []string{"", "machine"} {
		if code, body := get("http://" + address + w.base() + path); code != http.StatusOK {
			t.Errorf("the page's own %q: %d %s", path, code, body)
		}
	}
	for _, path := range []string{"/", "/?token=", "/page/page.js", "/machine", "/screen"} {
		get(other.URL + path)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) > 0 {
		t.Errorf("another port is sent %q", seen)
	}
}

func TestProxy(t *testing.T) {
	dial := guestServer(t)
	l := listen(t)
	first, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ended := make(chan error, 3)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		p := &Proxy{Dial: dial, Keep: true, Ended: func(err error) { ended <- err }}
		served <- p.Serve(ctx, l, first)
	}()
	for range 2 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := rfb.Open(conn, true)
		if err != nil {
			t.Fatal(err)
		}
		if width, height := c.Size(); width != 6 || height != 4 {
			t.Errorf("%d×%d", width, height)
		}
		conn.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestNoVNC(t *testing.T) {
	files, err := novnc.Open()
	if err != nil {
		t.Skip(err)
	}
	// What the page imports.
	if _, err := files.Open("core/rfb.js"); err != nil {
		t.Error(err)
	}
}
