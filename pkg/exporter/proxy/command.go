package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
)

const (
	// collectAt keeps the proxy small.
	collectAt = 25
	// connections is the number of connections at once, which bounds its memory.
	connections = 512
	// drain is how long downloads may go on after the proxy was told to end. They go on by another one.
	drain = 20 * time.Second
)

// Options are the flags of the proxy.
type Options struct {
	Address, HealthAddress string
	// Cert and Key are files, which the kubelet replaces.
	Cert, Key string
	Stall     time.Duration
	Log       *slog.Logger
}

// NewCommand returns the command `virt-exporter proxy`.
func NewCommand() *cobra.Command {
	o := Options{
		Cert:  filepath.Join(names.ExportProxyCertDir, "tls.crt"),
		Key:   filepath.Join(names.ExportProxyCertDir, "tls.key"),
		Stall: 2 * time.Minute,
	}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Pass on requests from outside of the cluster to the servers of exports",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(collectAt)
			o.Log = jsonlog.New(os.Stderr, names.VirtExportProxy, slog.LevelInfo)
			api, err := NewAPI()
			if err != nil {
				return err
			}
			return Run(cmd.Context(), o, api)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Address, "address", fmt.Sprintf(":%d", names.ExportProxyPort), "where to serve (TLS)")
	f.StringVar(&o.HealthAddress, "health-address", fmt.Sprintf(":%d", names.PortHealth),
		"where to serve /healthz and /readyz")
	return cmd
}

// Run serves until ctx ends, and lets downloads go on for a while.
func Run(ctx context.Context, o Options, find Finder) error {
	certificate := &certificate{cert: o.Cert, key: o.Key, now: time.Now}
	if _, err := certificate.get(nil); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	health, err := net.Listen("tcp", o.HealthAddress)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for health checks: %w", err), listener.Close())
	}
	server := &http.Server{
		Handler: NewHandler(find, o.Stall, o.Log), ReadHeaderTimeout: 10 * time.Second,
		// No ReadTimeout, which would end answers that take longer.
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // handshakes that fail are the clients'
	}
	checks := &http.Server{Handler: healthy(), ReadHeaderTimeout: 5 * time.Second}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		return served(server.Serve(tls.NewListener(netutil.LimitListener(listener, connections), &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate.get, NextProtos: []string{"http/1.1"},
		})))
	})
	work.Go(func() error { return served(checks.Serve(health)) })
	work.Go(func() error {
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		err := server.Shutdown(late)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
		return errors.Join(err, checks.Close())
	})
	o.Log.Info("serving", "address", listener.Addr().String())
	return work.Wait()
}

// served takes the end that was asked for.
func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// healthy answers the kubelet.
func healthy() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"GET /healthz", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "ok\n") // the kubelet is gone
		})
	}
	return mux
}
