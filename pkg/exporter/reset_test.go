package exporter

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
)

// A client that has not taken all of an answer learns of the server's end at once: its connection is reset, where one
// that is only closed ends after what is still on its way. One that all has reached, for the server had not sent more
// yet, learns by that.
func TestEndResets(t *testing.T) {
	var n int64
	var err error
	for range 10 {
		if n, err = endAmidDownload(t); errors.Is(err, syscall.ECONNRESET) {
			return
		}
	}
	t.Errorf("after %d more bytes: %v, want a reset", n, err)
}

// endAmidDownload ends a server whose client has taken a part of an answer, and returns what the client gets after.
func endAmidDownload(t *testing.T) (int64, error) {
	t.Helper()
	e := newExport(t)
	e.sparse(64 << 20) // more than is on its way to a client that takes nothing
	authority := httptest.NewUnstartedServer(nil)
	authority.StartTLS()
	defer authority.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	options := Options{
		Name: "exp", Token: filepath.Join(e.root, "token"), Volumes: []Volume{{"a.b", e.disk, disk}},
		Deadline: time.Now().Add(time.Hour), Stall: time.Minute, Log: slog.New(slog.DiscardHandler),
	}
	go func() { ended <- options.serve(ctx, listener, authority.TLS.Certificates[0]) }()

	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // any certificate will do
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+listener.Addr().String()+"/volumes/a.b/disk.img", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(names.HeaderExportToken, token)
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadFull(answer.Body, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return io.Copy(io.Discard, answer.Body)
}
