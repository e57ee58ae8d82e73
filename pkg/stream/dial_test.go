package stream

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// secureServer answers websockets with the request's header named want, over TLS.
func secureServer(t *testing.T, header string) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r, Options{})
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, r.Header.Get(header)+" "+r.URL.RequestURI())
		c.CloseWrite()
		io.Copy(io.Discard, c)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.EnableHTTP2 = true // as an API server: the dialler must ask for HTTP/1.1
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func caOf(server *httptest.Server) []byte {
	return []byte("-----BEGIN CERTIFICATE-----\n" +
		base64.StdEncoding.EncodeToString(server.Certificate().Raw) + "\n-----END CERTIFICATE-----\n")
}

func TestDialCredentials(t *testing.T) {
	for _, tc := range []struct {
		name, header, want string
		config             rest.Config
	}{
		{"bearer token", "Authorization", "Bearer secret", rest.Config{BearerToken: "secret"}},
		{"basic", "Authorization", "Basic YTpi", rest.Config{Username: "a", Password: "b"}},
		{
			"impersonation", "Impersonate-User", "jane",
			rest.Config{Impersonate: rest.ImpersonationConfig{UserName: "jane"}},
		},
		{"user agent", "User-Agent", "virtctl", rest.Config{UserAgent: "virtctl"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := secureServer(t, tc.header)
			cfg := tc.config
			cfg.Host = server.URL + "/clusters/one"
			cfg.CAData = caOf(server)
			cfg.NextProtos = []string{"h2"}
			c, err := Dial(testContext(t), &cfg, "/apis/x", url.Values{"join": {"true"}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := io.ReadAll(c)
			if want := tc.want + " /clusters/one/apis/x?join=true"; err != nil || string(got) != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestDialProxy(t *testing.T) {
	server := secureServer(t, "User-Agent")
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnels.Add(1)
		backend, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer backend.Close()
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { io.Copy(backend, client); backend.Close() }()
		io.Copy(client, backend)
	}))
	defer proxy.Close()
	cfg := rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: caOf(server)}}
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
	c, err := Dial(testContext(t), &cfg, "/x", nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
	if tunnels.Load() != 1 {
		t.Errorf("%d tunnels", tunnels.Load())
	}
}

func TestDialRefused(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		check   func(error) bool
		text    string
	}{
		{"status", func(w http.ResponseWriter, _ *http.Request) {
			WriteStatus(w, metav1.Status{
				Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Code: 409, Message: "not running",
			})
		}, apierrors.IsConflict, "not running"},
		{
			"plain text",
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "go away", http.StatusForbidden) },
			apierrors.IsForbidden, "go away",
		},
		{
			"no websocket", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok")) },
			func(err error) bool { return err != nil }, "instead of opening",
		},
		{
			"long text", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, long, http.StatusUnauthorized) },
			apierrors.IsUnauthorized, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(tc.handler)
			defer server.Close()
			_, err := Dial(testContext(t), &rest.Config{Host: server.URL}, "/x", nil, Options{})
			if !tc.check(err) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		_, err := Dial(testContext(t), &rest.Config{Host: "http://127.0.0.1:1"}, "/x", nil, Options{})
		var where *url.Error
		if !errors.As(err, &where) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("plain request to a stream", func(t *testing.T) {
		u := serve(t, Options{}, func(*Conn) {})
		resp, err := http.Get(u.String())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), `"kind":"Status"`) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	})
}

// The context bounds a handshake that hangs.
func TestDialCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	if _, err := Dial(ctx, &rest.Config{Host: server.URL}, "/x", nil, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A reverse proxy in between, as kube-apiserver is, ends a connection when either TCP side ends: the
// close frames alone must do.
func TestThroughReverseProxy(t *testing.T) {
	answer := random(t, 4<<20)
	backend := serve(t, Options{}, func(c *Conn) {
		io.Copy(io.Discard, c)
		c.Write(answer)
		c.CloseWrite()
	})
	proxy := httptest.NewServer(httputil.NewSingleHostReverseProxy(backend))
	defer proxy.Close()
	u, _ := url.Parse(proxy.URL)
	c := dial(t, u, Options{})
	c.Write(random(t, 4<<20))
	c.CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil || len(got) != len(answer) {
		t.Errorf("got %d bytes: %v", len(got), err)
	}
}
