// Package proxy is virt-exportproxy, `virt-exporter proxy`: the way to exports from outside of the cluster. An Ingress
// or a Route leads to its Service; it finds the export in a request's path and passes the request on to that export's
// server. It has the right to read exports and no other, and sees no token that it could keep: the server checks it.
//
//	client ──► Ingress or Route ──► proxy ──HTTPS, the export's own certificate──► Service of the export ──► its pod
//
// Anybody may send it requests, and what answers is a tenant's: neither is trusted.
package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	// requests is the number of requests that are answered at once, ofNamespace of those to exports of one namespace.
	// Each export's server has a bound of its own.
	requests, ofNamespace = 128, 32
	maxHeader             = 16 << 10
	// dialWithin is how long it may take to reach an export's server. It answers within answerIn: it reads a disk
	// before the first byte of a qcow2 image.
	dialWithin, answerIn = 10 * time.Second, 6 * time.Hour
)

// Export is what the proxy knows of an export.
type Export struct {
	// Ready says that its server can be asked.
	Ready bool
	// Authority signed the certificate of its server, PEM.
	Authority string
	// Address and Certificate are those of the export outside of the cluster, as its links have them.
	Address, Certificate string
}

// Finder finds exports.
type Finder interface {
	// Find returns an export. The error is errAbsent when there is none.
	Find(ctx context.Context, namespace, name string) (*Export, error)
}

// errAbsent says that there is no such export.
var errAbsent = errors.New("there is no such export")

// Handler answers requests.
type Handler struct {
	Exports Finder
	// Dial reaches an address of the cluster.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Stall is the time for which a client may take nothing.
	Stall time.Duration
	// Look is the time that a look for an export may take.
	Look time.Duration
	Log  *slog.Logger

	slots      slots
	transports transports
}

// NewHandler returns a handler.
func NewHandler(find Finder, stall time.Duration, log *slog.Logger) *Handler {
	return &Handler{
		Exports: find, Dial: patiently((&net.Dialer{Timeout: dialWithin}).DialContext, settling, again),
		Stall: stall, Look: dialWithin, Log: log,
	}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "an export is only read: use GET", http.StatusMethodNotAllowed)
		return
	}
	if r.ContentLength != 0 {
		// What nobody reads is thrown away, which must not take for ever.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(dialWithin)) // a test's has none
		http.Error(w, "an export is only read: send no body", http.StatusBadRequest)
		return
	}
	asked, ok := exports.Parse(r.URL.Path)
	if !ok {
		http.Error(w, "no export has this address", http.StatusNotFound)
		return
	}
	if r.Header.Get(names.HeaderExportToken) == "" && r.URL.Query().Get(names.HeaderExportToken) == "" {
		// Its server would say so, too; without one nobody is asked.
		http.Error(w, "the export's token is missing: send it as header "+names.HeaderExportToken,
			http.StatusUnauthorized)
		return
	}
	// Whoever looks takes no slot: nobody has seen the token yet.
	export, err := h.find(r.Context(), asked)
	switch {
	case errors.Is(err, errAbsent):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		h.Log.Error("cannot look for an export", "namespace", asked.Namespace, "export", asked.Name, "err", err)
		unavailable(w, "the export cannot be looked for now: try again later")
		return
	case !export.Ready:
		unavailable(w, "the export is not ready: its conditions say why")
		return
	case !h.slots.take(asked.Namespace):
		unavailable(w, "too many downloads are under way: try again later")
		return
	}
	defer h.slots.give(asked.Namespace)
	h.pass(w, r, asked, export)
}

// find looks for an export, for as long as the API server may take.
func (h *Handler) find(ctx context.Context, asked exports.Requested) (*Export, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Look)
	defer cancel()
	return h.Exports.Find(ctx, asked.Namespace, asked.Name)
}

func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// secure has browsers show what comes as text, and run none of it: all exports have one origin here.
func secure(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("Cache-Control", "no-store")
}

// pass passes a request on to an export's server, and the answer back.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, asked exports.Requested, export *Export) {
	host := exports.Host(asked.Namespace, asked.Name)
	transport, err := h.transports.of(h.Dial, host, export.Authority)
	if err != nil {
		h.Log.Error("cannot be reached", "namespace", asked.Namespace, "export", asked.Name, "err", err)
		http.Error(w, "the export has no certificate that can be verified", http.StatusBadGateway)
		return
	}
	clear(w.Header()) // the answer has the same
	began := time.Now()
	out := &patient{ResponseWriter: w, control: http.NewResponseController(w), stall: h.Stall}
	// A copy that breaks panics, for the client to see that this is not all.
	defer func() {
		h.Log.Info("served", "namespace", asked.Namespace, "export", asked.Name, "path", asked.Path,
			"peer", r.RemoteAddr, "bytes", out.bytes, "took", time.Since(began))
	}()
	(&httputil.ReverseProxy{
		Transport:      once{transport},
		Rewrite:        func(p *httputil.ProxyRequest) { rewrite(p, host, asked.Path, export) },
		ErrorLog:       slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug),
		ModifyResponse: answered,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			secure(w.Header())
			h.Log.Warn("did not answer", "namespace", asked.Namespace, "export", asked.Name, "err", err)
			http.Error(w, "the export's server does not answer: try again later", http.StatusBadGateway)
		},
	}).ServeHTTP(out, r)
}

// rewrite makes the request to the export's server. Of the client's headers it takes those of a download: no other may
// mean anything there.
func rewrite(p *httputil.ProxyRequest, host, path string, export *Export) {
	p.Out.URL = &url.URL{Scheme: "https", Host: host, Path: path, RawQuery: p.Out.URL.RawQuery}
	p.Out.Host = host
	p.Out.Header = http.Header{"User-Agent": {names.VirtExportProxy}}
	for _, name := range []string{
		names.HeaderExportToken, "Accept", "Range", "If-Match", "If-None-Match", "If-Range",
	} {
		if values := p.In.Header.Values(name); len(values) > 0 {
			p.Out.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if strings.HasPrefix(path, names.ExportExternal) && export.Address != "" {
		p.Out.Header.Set(names.HeaderExportAddress, export.Address)
		p.Out.Header.Set(names.HeaderExportAuthority, base64.StdEncoding.EncodeToString([]byte(export.Certificate)))
	}
}

// patient gives a client some time for each part of an answer.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	bytes   int64
}

// Unwrap serves http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *patient) Write(b []byte) (int, error) {
	if err := p.control.SetWriteDeadline(time.Now().Add(p.stall)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.ResponseWriter.Write(b)
	p.bytes += int64(n)
	return n, err
}

// newTransport makes connections to one export's server, which is known by its own authority.
func newTransport(
	dial func(ctx context.Context, network, address string) (net.Conn, error), host, authority string,
) (*http.Transport, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authority)) {
		return nil, errors.New("the export's status has no certificate")
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial(ctx, network, net.JoinHostPort(host, strconv.Itoa(names.ExportServicePort)))
		},
		TLSClientConfig:     &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: dialWithin, ResponseHeaderTimeout: answerIn, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader, IdleConnTimeout: idle, MaxIdleConnsPerHost: 2,
	}, nil
}

// keyOf identifies a transport: another export of the same name has another authority.
func keyOf(host, authority string) string {
	sum := sha256.Sum256([]byte(authority))
	return host + string(sum[:])
}
