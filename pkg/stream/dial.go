package stream

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Dial opens a stream at path (with query, which may be nil) of the server that cfg names, with all that a
// kubeconfig can say: TLS, bearer tokens and their files, client certificates, exec plugins, basic
// authentication, impersonation, proxies. ctx bounds the handshake only. A refusal by the server is
// an *apierrors.StatusError.
func Dial(ctx context.Context, cfg *rest.Config, path string, query url.Values, opts Options) (*Conn, error) {
	return NewDialer(cfg).Dial(ctx, path, query, opts)
}

// sessions is the number of TLS sessions that a Dialer keeps: one for each address that the server's name leads to.
const sessions = 8

// Dialer opens streams of one server again and again. It reads certificates once and resumes TLS sessions, which takes
// milliseconds off each stream but the first.
type Dialer struct {
	cfg *rest.Config
	tls func() (*tls.Config, error)
}

// NewDialer makes a Dialer; it neither reads nor dials anything yet. cfg must not be changed any more.
func NewDialer(cfg *rest.Config) *Dialer {
	return &Dialer{cfg: cfg, tls: sync.OnceValues(func() (*tls.Config, error) {
		tc, err := cfg.TransportConfig()
		if err != nil {
			return nil, err
		}
		// A websocket needs HTTP/1.1 whatever the config prefers for requests.
		tc.TLS.NextProtos = nil
		config, err := transport.TLSConfigFor(tc)
		if config != nil {
			config.ClientSessionCache = tls.NewLRUClientSessionCache(sessions)
		}
		return config, err
	})}
}

// Dial returns the function of the same name.
func (d *Dialer) Dial(ctx context.Context, path string, query url.Values, opts Options) (*Conn, error) {
	base, _, err := rest.DefaultServerUrlFor(d.cfg)
	if err != nil {
		return nil, fmt.Errorf("server address %q: %w", d.cfg.Host, err)
	}
	target := base.JoinPath(path)
	target.RawQuery = query.Encode()

	tlsConfig, err := d.tls()
	if err != nil {
		return nil, err
	}
	tc, err := d.cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	u := &upgradeRoundTripper{tls: tlsConfig, proxy: tc.Proxy, opts: opts}
	if u.proxy == nil {
		u.proxy = http.ProxyFromEnvironment
	}
	if tc.DialHolder != nil {
		u.dial = tc.DialHolder.Dial
	}
	// The wrappers put the credentials into the request's headers.
	rt, err := transport.HTTPWrappersForConfig(tc, u)
	if err != nil {
		return nil, err
	}
	return u.open(ctx, rt, target, nil)
}

// DialURL opens a stream with a given TLS configuration and header, which may be nil, and no proxy, from one server to
// another. The URL's scheme is http or https.
func DialURL(
	ctx context.Context, target *url.URL, tlsConfig *tls.Config, header http.Header, opts Options,
) (*Conn, error) {
	u := &upgradeRoundTripper{tls: tlsConfig, opts: opts}
	return u.open(ctx, u, target, header)
}

// DialOver opens a stream over a connection to the server that is there already, with TLS if the URL's scheme is https.
// It owns the connection from then on, also when it fails.
func DialOver(ctx context.Context, conn net.Conn, target *url.URL, header http.Header, opts Options) (*Conn, error) {
	u := &upgradeRoundTripper{
		over: true, opts: opts,
		dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	opened, err := u.open(ctx, u, target, header)
	if err != nil {
		_ = conn.Close() // err says more
	}
	return opened, err
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// upgradeRoundTripper opens a websocket for each request that reaches it, so that client-go's wrappers
// can add their headers on the way.
type upgradeRoundTripper struct {
	tls   *tls.Config
	proxy func(*http.Request) (*url.URL, error)
	dial  dialFunc
	over  bool // dial gives connections that have TLS already
	opts  Options

	conn *Conn // the outcome
}

func (u *upgradeRoundTripper) open(
	ctx context.Context, rt http.RoundTripper, target *url.URL, header http.Header,
) (*Conn, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if u.conn != nil {
		return u.conn, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

// RoundTrip implements http.RoundTripper. The response of a refusal has its body; one of success has
// none, and u.conn is set.
func (u *upgradeRoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	target := *req.URL
	target.Scheme = strings.Replace(target.Scheme, "http", "ws", 1)

	// The handshake does not watch ctx by itself once the connection is there.
	var stops []func() bool
	dial := u.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	dialer := websocket.Dialer{
		TLSClientConfig: u.tls,
		Proxy:           u.proxy,
		ReadBufferSize:  frameBuffer,
		WriteBufferSize: frameBuffer,
		WriteBufferPool: &writeBuffers,
		Subprotocols:    u.opts.withDefaults().subprotocols(),
		NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err == nil {
				stops = append(stops, context.AfterFunc(ctx, func() { conn.Close() }))
			}
			return conn, err
		},
	}
	if u.over {
		dialer.NetDialTLSContext = dialer.NetDialContext
	}
	ws, resp, err := dialer.DialContext(ctx, target.String(), req.Header)
	for _, stop := range stops {
		if !stop() && err == nil {
			err = ctx.Err()
			ws.Close()
		}
	}
	if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
		return resp, nil
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, &url.Error{Op: "Get", URL: req.URL.Redacted(), Err: err}
	}
	u.conn = newConn(ws, u.opts)
	return resp, nil
}

// refusal returns the error of a response other than the upgrade. The body has been cut at 1 KiB by the websocket
// library; a Status is mostly shorter.
func refusal(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the server's answer %q: %w", resp.Status, err)
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode < 400 {
		return fmt.Errorf("the server answered %q instead of opening a websocket", resp.Status)
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, http.MethodGet, schema.GroupResource{}, "",
		strings.TrimSpace(string(body)), 0, true)
}
