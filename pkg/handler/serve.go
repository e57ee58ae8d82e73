package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/virtkit/virtkit/pkg/handler/migrationproxy"
	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/handler/usage"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

// serveStreams serves virt-api.
func (h *handler) serveStreams(
	ctx context.Context, r *Reconciler, reader *usage.Reader, guestTLS, config *tls.Config,
) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(h.port)))
	if err != nil {
		return fmt.Errorf("listen for virt-api: %w", err)
	}
	guests := &streams.Server{
		PodsDir: h.pods, Launcher: r.Launcher, Usage: reader, Firewall: r.Firewall,
		Dial: r.DialGuest, DialVSOCK: r.DialVSOCK,
		UploadPod: h.uploadPod, UploadPeer: h.uploadPeer,
		GuestTLS: guestTLS, Runs: r.Runs, Leaving: r.Leaving, Guest: r.Guest, Limits: h.limits, Log: h.log,
	}
	return serve(ctx, &http.Server{
		Handler: guests.Handler(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}, tls.NewListener(listener, config), guests.Close)
}

// serveNodes serves the virt-handlers of other nodes, from which guests come, and which ask for the last heartbeat.
func (h *handler) serveNodes(ctx context.Context, r *Reconciler, others *peers, config *tls.Config) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(h.migrationPort)))
	if err != nil {
		return fmt.Errorf("listen for other nodes: %w", err)
	}
	server := &migrationproxy.Server{Open: r.OpenIncoming, Peer: certs.HandlerNode, Log: h.log}
	return serve(ctx, &http.Server{
		Handler: forNodes(server.Handler(), others), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}, tls.NewListener(listener, config), server.Close)
}

// forNodes serves other nodes: their guests' migrations, and this node's heartbeat.
func forNodes(migrations http.Handler, others *peers) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", migrations)
	mux.Handle("GET "+heartbeatPath, others)
	return mux
}

// serveHealth answers the kubelet: healthy while no pass is stuck, ready once it follows the node's guests and
// can be called. A guest whose storage does not answer concerns neither: only its session waits for that.
func (h *handler) serveHealth(ctx context.Context, passes *passes, needed ...<-chan struct{}) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(h.healthPort)))
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	server := &http.Server{Handler: h.health(passes, needed...), ReadHeaderTimeout: 10 * time.Second}
	return serve(ctx, server, listener, func() {})
}

// health serves /healthz and /readyz.
func (h *handler) health(passes *passes, needed ...<-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if vmi, stuck := passes.stuck(h.node.Now()); stuck {
			h.log.Error("a pass does not end", "vmi", vmi.String(), "limit", passLimit)
			const message = "not healthy: a pass over a VirtualMachineInstance does not end; see the log"
			http.Error(w, message, http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		for _, n := range needed {
			select {
			case <-n:
			default:
				http.Error(w, "not ready: waiting for the API server or the certificate", http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// serve runs an HTTP server until the context ends; closeStreams ends the connections that were upgraded to streams.
func serve(ctx context.Context, server *http.Server, listener net.Listener, closeStreams func()) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		closeStreams()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close()
		}
	})
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
