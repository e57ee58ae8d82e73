package vnc

import (
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/stream"
)

//go:embed page
var page embed.FS

// Web serves a page that shows a guest's screen to one browser. The browser proves who it is with a token in the URL that
// is good once; from then on with a cookie. Only this machine can connect, and only the page itself may use the
// screen: a page of another site, or one that has its name pointed here, is refused.
type Web struct {
	// Dial opens the guest's VNC server; Machine is what the page calls it.
	Dial    Dial
	Machine string
	// NoVNC has noVNC's files.
	NoVNC fs.FS
	// Token opens the page, Session is the cookie's value. Both are secrets, of at least 128 random bits.
	Token, Session string

	port   int
	ctx    context.Context
	active sync.WaitGroup
	once   sync.Mutex
	used   bool
	first  *stream.Conn
}

// Serve serves at l, which listens on a loopback address and is closed at the end, until ctx ends. first is a session
// opened before, or nil.
func (w *Web) Serve(ctx context.Context, l net.Listener, first *stream.Conn) error {
	w.port, w.first = l.Addr().(*net.TCPAddr).Port, first
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.ctx = ctx
	server := &http.Server{Handler: w.handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_ = server.Close()
	})
	err := server.Serve(l)
	failed := stop()
	cancel()
	if !failed {
		<-stopped
	}
	w.active.Wait()
	w.once.Lock()
	defer w.once.Unlock()
	if w.first != nil {
		_ = w.first.Close()
	}
	if failed {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// URL is what opens the page, once.
func (w *Web) URL(port int) string {
	return fmt.Sprintf("http://127.0.0.1:%d/?token=%s", port, w.Token)
}

func (w *Web) handler() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // a constant name
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, r *http.Request) { http.ServeFileFS(rw, r, files, "index.html") })
	mux.Handle("GET /page/", http.StripPrefix("/page/", http.FileServerFS(files)))
	mux.Handle("GET /novnc/", http.StripPrefix("/novnc/", http.FileServerFS(w.NoVNC)))
	mux.HandleFunc("GET /machine", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(map[string]string{"name": w.Machine}) // the browser is gone: nobody to tell
	})
	mux.HandleFunc("GET /screen", w.screen)
	return w.guarded(mux)
}

// guarded lets the one browser in.
func (w *Web) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Set("Content-Security-Policy", w.policy())
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !slices.Contains(w.hosts(), r.Host):
			http.Error(rw, "this page is served as "+w.hosts()[0]+" only", http.StatusMisdirectedRequest)
		case !w.sameOrigin(r):
			http.Error(rw, "another site's page may not use this one", http.StatusForbidden)
		case !w.known(rw, r):
			http.Error(rw, "This address works once, in one browser. Run virtctl vnc --web again for another.", http.StatusForbidden)
		default:
			next.ServeHTTP(rw, r)
		}
	})
}

// hosts are the names that the page is served as.
func (w *Web) hosts() []string {
	port := strconv.Itoa(w.port)
	return []string{"127.0.0.1:" + port, "localhost:" + port}
}

// sameOrigin checks what a browser says of where a request comes from. A websocket always has an Origin.
func (w *Web) sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return !stream.IsUpgrade(r)
	}
	return origin == "http://"+r.Host
}

// policy allows the page its own scripts, pictures and websocket, and nothing from elsewhere.
func (w *Web) policy() string {
	sockets := "ws://" + strings.Join(w.hosts(), " ws://")
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' " + sockets +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

func (w *Web) cookie() string { return "virtctl-vnc-" + strconv.Itoa(w.port) }

// known reports whether the browser is the one, by its cookie or the unused token, which then makes it the one.
func (w *Web) known(rw http.ResponseWriter, r *http.Request) bool {
	if c, err := r.Cookie(w.cookie()); err == nil && same(c.Value, w.Session) {
		return true
	}
	token := r.URL.Query().Get("token")
	if r.URL.Path != "/" || !same(token, w.Token) {
		return false
	}
	w.once.Lock()
	defer w.once.Unlock()
	if w.used {
		return false
	}
	w.used = true
	http.SetCookie(rw, &http.Cookie{Name: w.cookie(), Value: w.Session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return true
}

func same(a, b string) bool { return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// screen joins the page's websocket to the guest.
func (w *Web) screen(rw http.ResponseWriter, r *http.Request) {
	if !stream.IsUpgrade(r) {
		http.Error(rw, "this is a stream: ask for a websocket", http.StatusBadRequest)
		return
	}
	w.once.Lock()
	guest := w.first
	w.first = nil
	w.once.Unlock()
	w.active.Add(1)
	defer w.active.Done()
	var dialled error
	if guest == nil {
		guest, dialled = w.Dial(w.ctx)
	}
	browser, err := stream.Accept(rw, r, stream.Options{})
	switch {
	case err != nil: // answered
		if guest != nil {
			_ = guest.Close()
		}
	case dialled != nil:
		_ = browser.CloseWithReason(stream.CodeInternal, dialled.Error()) // a page can read no other answer
	default:
		// How it ends is told to the page by the close frame.
		_ = stream.Splice(w.ctx, browser, guest)
	}
}
