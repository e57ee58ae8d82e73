package forward

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// registry is one in a directory with a short path.
func registry(t *testing.T) Registry {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") //nolint:usetesting // short, for sockets' paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r, err := NewRegistry(func(string) string { return "" }, func() (string, error) { return dir, nil })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// session runs one; the channel is closed when it has ended.
func session(t *testing.T, r Registry, id string, started time.Time) <-chan struct{} {
	t.Helper()
	log, err := r.Create(id)
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	s := NewSession(id, "ns", "vm/demo", []*Local{{Port: Port{TCP, 8080, 80}, Address: "127.0.0.1:8080"}}, nil)
	s.CreationTimestamp = metav1.NewTime(started)
	ctx, cancel := context.WithCancel(context.Background())
	ready, done, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Serve(ctx, id, func() *Session { return s },
			func() { close(ready) }, func() { close(done); cancel() }, done); err != nil {
			t.Error(err)
		}
		if err := r.Remove(id); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-ready
	return ended
}

func TestRegistry(t *testing.T) {
	r := registry(t)
	if sessions, err := r.List(t.Context()); err != nil || len(sessions) != 0 {
		t.Fatalf("none: %v, %v", sessions, err)
	}
	now := time.Now()
	session(t, r, "young", now)
	ended := session(t, r, "old", now.Add(-time.Hour))
	sessions, err := r.List(t.Context())
	if err != nil || len(sessions) != 2 || sessions[0].Name != "old" || sessions[1].Name != "young" {
		t.Fatalf("list: %v, %v", sessions, err)
	}
	if p := sessions[0].Ports; len(p) != 1 || p[0] != (SessionPort{TCP, "127.0.0.1:8080", 8080, 80}) ||
		sessions[0].Kind != "PortForward" {
		t.Errorf("session %+v", sessions[0])
	}
	s, err := r.Stop(t.Context(), "old")
	if err != nil || s.Name != "old" {
		t.Fatalf("stop: %v, %v", s, err)
	}
	<-ended
	if _, err := r.Stop(t.Context(), "old"); !errors.Is(err, action.ErrNotFound) {
		t.Errorf("stop again: %v", err)
	}
	if sessions, err := r.List(t.Context()); err != nil || len(sessions) != 1 {
		t.Errorf("list after stop: %v, %v", sessions, err)
	}
}

// A session that was killed has left its socket and nobody behind it.
func TestRegistryForgetsTheKilled(t *testing.T) {
	r := registry(t)
	log, err := r.Create("dead")
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	l, err := net.Listen("unix", r.socket("dead"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if sessions, err := r.List(t.Context()); err != nil || len(sessions) != 0 {
		t.Errorf("list: %v, %v", sessions, err)
	}
	if entries, err := os.ReadDir(r.Dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestRegistryRefusals(t *testing.T) {
	r := registry(t)
	for _, id := range []string{"", "../x", "none"} {
		if _, err := r.Stop(t.Context(), id); !errors.Is(err, action.ErrNotFound) {
			t.Errorf("stop %q: %v", id, err)
		}
	}
	long := Registry{r.Dir + strings.Repeat("/long", 30)}
	if _, err := long.Create("x"); err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
		t.Errorf("long path: %v", err)
	}
}
