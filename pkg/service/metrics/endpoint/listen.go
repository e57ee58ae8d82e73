package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Path is where metrics are.
const Path = "/metrics"

// Listen serves the endpoint at a port until ctx ends. The API server says who calls and whether they may: a token, and
// `get` of the path. Without, the answer is 401 or 403.
func (e *Endpoint) Listen(ctx context.Context, port int, tlsConfig *tls.Config, cluster *rest.Config) error {
	guarded, err := e.guarded(cluster)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listen for Prometheus: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(Path, guarded)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * mostTime,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		// Failed handshakes are the callers' business.
		ErrorLog: log.New(discard{}, "", 0),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err = server.Serve(tls.NewListener(listener, tlsConfig))
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve metrics: %w", err)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) {
	klog.V(4).InfoS("metrics", "err", string(p))
	return len(p), nil
}
