package vnc

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/stream"
)

// A server that has heard that the viewer sends no more, and has nothing to send itself, does not keep the proxy.
func TestProxyEndsWithItsViewer(t *testing.T) {
	heard, over := make(chan error, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := stream.Accept(w, r, stream.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, err = io.Copy(io.Discard, c)
		heard <- err
		<-over
	}))
	t.Cleanup(server.Close)
	defer close(over)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	guest, err := stream.DialURL(t.Context(), target, nil, nil, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- (&Proxy{}).Serve(t.Context(), l, guest) }()
	viewer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := viewer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-heard; err != nil {
		t.Errorf("the server heard %v", err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("%v: that a viewer goes is no error", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the proxy stays after its viewer has left")
	}
}
