package vnc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
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

// Web serves a page that shows a guest's screen to one browser. The browser proves who it is with a token in the URL
// that is good once; from then on with a cookie. Browsers send a cookie of 127.0.0.1 to all of its ports, and so to
// other users' servers; this one is for a path that only the page knows. Only this machine can connect, and only the
// page itself may use the screen: a page of another site, or one that has its name pointed here, is refused.
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

// URL returns the address that opens the page, once.
func (w *Web) URL(port int) string {
	return fmt.Sprintf("http://127.0.0.1:%d/?token=%s", port, w.Token)
}

func (w *Web) handler() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // a constant name
	}
	index, err := w.index()
	if err != nil {
		panic(err) // an embedded file
	}
	mux, base := http.NewServeMux(), w.base()
	for _, path := range []string{"/", base} { // the first is opened with the token
		mux.HandleFunc("GET "+path+"{$}", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = rw.Write(index) // the browser is gone: nobody to tell
		})
	}
	mux.Handle("GET "+base+"page/", http.StripPrefix(base+"page/", http.FileServerFS(files)))
	mux.Handle("GET "+base+"novnc/", http.StripPrefix(base+"novnc/", http.FileServerFS(w.NoVNC)))
	mux.HandleFunc("GET "+base+"machine", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(map[string]string{"name": w.Machine}) // the browser is gone: nobody to tell
	})
	mux.HandleFunc("GET "+base+"screen", w.screen)
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
			http.Error(rw, "This address works once, in one browser. Run `virtctl vnc --web` again for another.",
				http.StatusForbidden)
		default:
			next.ServeHTTP(rw, r)
		}
	})
}

// hosts returns the names under which the page is served.
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
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' " +
		sockets +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// base returns the path of everything but the first page, which is also the cookie's path. It is a secret made of
// another, since a server that guesses it is sent the cookie.
func (w *Web) base() string {
	sum := sha256.Sum256([]byte("path " + w.Session))
	return "/" + hex.EncodeToString(sum[:16]) + "/"
}

// index returns the page, with the paths of what it loads below base.
func (w *Web) index() ([]byte, error) {
	data, err := page.ReadFile("page/index.html")
	return bytes.ReplaceAll(data, []byte(`"/page/`), []byte(`"`+w.base()+`page/`)), err
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
	http.SetCookie(rw, &http.Cookie{
		Name: w.cookie(), Value: w.Session, Path: w.base(), HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
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
		// The page reads from the close frame how it ends.
		_ = stream.Splice(w.ctx, browser, guest)
	}
}
