// Package exporter is the server in the pod of a VirtualMachineExport, `virt-exporter serve`. It reads claims that are
// mounted in the pod and serves them over HTTPS to clients with the export's token: disks raw and as qcow2 images, by
// ranges, and compressed, file systems as a tree and as an archive, the VM's manifests, and the VM with its disks as an
// OVA. The pod is the tenant's and
// has no rights; the contents of the claims are not trusted, so nothing on them leads out of them.
//
//	claim ──mount, read-only──► exporter ──HTTPS, token──► virtctl, CDI of another cluster
package exporter

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
)

type kind int

const (
	disk kind = iota
	device
	tree
)

// Volume is one claim.
type Volume struct {
	Name, Path string
	kind       kind
}

// Options of the server.
type Options struct {
	// Name is the export's, Host the name of its Service in the cluster.
	Name    string
	Host    string
	Address string
	// Cert, Key and Token are files.
	Cert, Key, Token string
	// Manifests is a directory, empty for none.
	Manifests string
	Volumes   []Volume
	// Socket is the socket by which virt-handler finds the process that is to have the devices; used only where there
	// are some.
	Socket string
	// Tag distinguishes what devices have from what those of another export do, where nobody else writes to them; empty
	// where somebody may while the server does not run.
	Tag string
	// Created is when the source of the export was made, which is the time of the files in an OVA.
	Created time.Time
	// Deadline is when the export is over.
	Deadline time.Time
	// Stall is the time for which a client may take nothing.
	Stall time.Duration
	Log   *slog.Logger
}

const (
	// downloads is the number of requests that are answered at once.
	downloads = 8
	// maxHeader is enough for the certificates that virt-exportproxy sends, exports.MaxCertificate in base64.
	maxHeader = 64 << 10
	// maxToken bounds the token's file, bytes: a Secret may be as large.
	maxToken = 1 << 20
)

// Run serves until ctx ends or the export is over. Answers under way are cut then: what a claim holds may change.
func Run(ctx context.Context, o Options) error {
	certificate, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return fmt.Errorf("load the certificate: %w", err)
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return o.serve(ctx, listener, certificate)
}

func (o Options) serve(ctx context.Context, listener net.Listener, certificate tls.Certificate) error {
	ctx, cancel := context.WithDeadline(ctx, o.Deadline)
	defer cancel()
	server := newServer(NewHandler(o), o.Log)
	if err := o.show(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	over, closed := &atomic.Bool{}, make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		over.Store(true)
		_ = server.Close() // Serve says that it is closed
	})
	defer stop()
	o.Log.Info("serving", "export", o.Name, "volumes", len(o.Volumes), "until", o.Deadline)
	err := server.Serve(tls.NewListener(&resetting{listener, over}, &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}))
	if errors.Is(err, http.ErrServerClosed) {
		<-closed // the process may end after this, which does not reset connections
		return nil
	}
	return err
}

func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeader,
		// Nothing is read after the headers.
		ReadTimeout: 20 * time.Second,
		// A certificate's complaints are the clients'.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// handler answers requests.
type handler struct {
	Options
	volumes map[string]Volume
	// instance is the Tag, or distinguishes one run of the server from another.
	instance string
	slots    chan struct{}
	layouts  layouts
}

// NewHandler returns the handler of requests. All but the kubelet's need the token.
func NewHandler(o Options) http.Handler {
	instance := make([]byte, 8)
	_, _ = rand.Read(instance) // never fails
	h := &handler{
		Options: o, volumes: map[string]Volume{}, instance: cmp.Or(o.Tag, hex.EncodeToString(instance)),
		slots: make(chan struct{}, downloads), layouts: layouts{turn: make(chan struct{}, 1)},
	}
	for _, volume := range o.Volumes {
		h.volumes[volume.Name] = volume
	}
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	// The files served are not trusted: a browser shows them as text, and runs none of them.
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "an export is only read: use GET", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == names.ExportReady {
		h.ready(w)
		return
	}
	if err := h.admit(r); err != nil {
		h.Log.Warn("refused", "path", r.URL.Path, "peer", r.RemoteAddr, "err", err)
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		header.Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("the export serves %d downloads already: try again later", downloads),
			http.StatusServiceUnavailable)
		return
	}
	began := time.Now()
	out := &patient{ResponseWriter: w, control: http.NewResponseController(w), stall: h.Stall}
	defer func() {
		h.Log.Info("served", "path", r.URL.Path, "peer", r.RemoteAddr, "bytes", out.bytes, "took", time.Since(began))
	}()
	h.route(out, r)
}

// errToken is the answer to a client whose token is missing or wrong: it says no more than that.
var errToken = errors.New("the export's token is missing or wrong: send it as header " + names.HeaderExportToken)

// admit compares the token. The file is read for each request, since the Secret may change; an empty one opens nothing.
func (h *handler) admit(r *http.Request) error {
	file, err := os.Open(h.Token)
	if err != nil {
		return fmt.Errorf("the export's token cannot be read: is there key %q in its Secret?", names.ExportTokenKey)
	}
	defer file.Close()
	token, err := io.ReadAll(io.LimitReader(file, maxToken))
	if err != nil {
		return errors.New("the export's token cannot be read")
	}
	if !matches(r, token) {
		return errToken
	}
	return nil
}

// matches reports whether a request has the token, in a time that does not depend on what is wrong with it.
func matches(r *http.Request, token []byte) bool {
	want, found := sha256.Sum256(token), 0
	for _, given := range []string{
		r.Header.Get(names.HeaderExportToken), r.URL.Query().Get(names.HeaderExportToken),
	} {
		got := sha256.Sum256([]byte(given))
		found |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return len(token) > 0 && found == 1
}

func (h *handler) route(w http.ResponseWriter, r *http.Request) {
	if h.Manifests != "" {
		// Clients outside of the cluster have the same below another path.
		path, external := r.URL.Path, false
		if rest, ok := strings.CutPrefix(path, names.ExportExternal); ok {
			path, external = names.ExportInternal+rest, true
		}
		switch path {
		case names.ExportManifests, names.ExportSecret:
			h.manifests(w, r, path, external)
			return
		case names.ExportOVA:
			h.failed(w, r, h.serveOVA(w, r))
			return
		}
	}
	rest, ok := strings.CutPrefix(r.URL.Path, names.ExportVolumes)
	name, file, _ := strings.Cut(rest, "/")
	volume, found := h.volumes[name]
	if !ok || !found {
		http.Error(w, "the export has no such volume", http.StatusNotFound)
		return
	}
	var err error
	switch {
	case volume.kind == tree && strings.HasPrefix(file, names.ExportTree):
		err = serveTree(w, r, volume)
	case volume.kind == tree && file == names.ExportArchive:
		err = serveArchive(w, r, volume)
	case volume.kind != tree && file == names.ExportRaw:
		err = h.serveRaw(w, r, volume)
	case volume.kind != tree && file == names.ExportGzip:
		err = h.serveGzip(w, r, volume)
	case volume.kind != tree && file == names.ExportQCOW2:
		err = h.serveQCOW2(w, r, volume)
	default:
		http.Error(w, "the volume is not served so", http.StatusNotFound)
	}
	h.failed(w, r, err)
}

// failed answers with an error, if there is one.
func (h *handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	h.Log.Error("could not be served", "path", r.URL.Path, "err", err)
	if out, ok := w.(*patient); ok && out.begun {
		panic(http.ErrAbortHandler) // the client is to see that this is not all
	}
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, os.ErrNotExist):
		code = http.StatusNotFound
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "5")
		code = http.StatusServiceUnavailable
	case errors.Is(err, errTooLarge) || errors.Is(err, errTooLargeOVA) || errors.Is(err, errNoVM):
		code = http.StatusUnprocessableEntity
	}
	http.Error(w, err.Error(), code)
}

// patient gives a client some time for each part of an answer, and notes whether an answer has begun.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	begun   bool
	bytes   int64
}

// Unwrap serves http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *patient) WriteHeader(code int) {
	p.begun = true
	p.ResponseWriter.WriteHeader(code)
}

func (p *patient) Write(b []byte) (int, error) {
	p.begun = true
	if err := p.control.SetWriteDeadline(time.Now().Add(p.stall)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.ResponseWriter.Write(b)
	p.bytes += int64(n)
	return n, err
}
