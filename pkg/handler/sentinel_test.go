package handler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
)

// sentry is a sentinel over a directory of launchers and an API server that is a list.
type sentry struct {
	*sentinel
	now           time.Time
	cached, fresh []types.UID
	down          bool
	asked         []bool // whether each question was for fresh pods
	killed        []types.UID
	returned      int
}

func newSentry(t *testing.T, launchers ...string) *sentry {
	t.Helper()
	dir := t.TempDir()
	for _, pod := range launchers {
		run := podfs.RunPath(dir, types.UID(pod))
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(run, names.SocketLauncher), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "no-launcher"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &sentry{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.sentinel = &sentinel{
		node: &Node{PodsDir: dir, Now: func() time.Time { return s.now }}, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		pods: func(_ context.Context, fresh bool) ([]types.UID, error) {
			s.asked = append(s.asked, fresh)
			switch {
			case s.down:
				return nil, errors.New("no route to host")
			case fresh:
				return s.fresh, nil
			}
			return s.cached, nil
		},
		kill:  func(pod types.UID) (int, error) { s.killed = append(s.killed, pod); return 1, nil },
		back:  func() { s.returned++ },
		ended: func(types.UID, string) {},
		heard: s.now,
	}
	return s
}

// A guest is ended when its pod is gone for certain, and at no other time.
func TestSentinel(t *testing.T) {
	s := newSentry(t, "a", "b")
	look := func(suspicious bool) {
		t.Helper()
		if err := s.look(t.Context(), suspicious); err != nil {
			t.Fatal(err)
		}
	}
	s.cached, s.fresh = []types.UID{"a", "b", "x"}, []types.UID{"a", "b"}
	look(false)
	if !slices.Equal(s.asked, []bool{false}) || s.killed != nil {
		t.Errorf("all is well: asked %v, killed %v", s.asked, s.killed)
	}
	s.cached = []types.UID{"a"} // a cache that is behind
	look(false)
	if !slices.Equal(s.asked, []bool{false, false, true}) || s.killed != nil {
		t.Errorf("the cache is behind: asked %v, killed %v", s.asked, s.killed)
	}
	s.fresh = []types.UID{"a"}
	look(false)
	if !slices.Equal(s.killed, []types.UID{"b"}) {
		t.Errorf("b is gone: killed %v", s.killed)
	}
	s.cached, s.fresh, s.asked, s.killed = []types.UID{"a", "b"}, []types.UID{"b"}, nil, nil
	look(true) // a pod was removed, which the cache does not know
	if !slices.Equal(s.asked, []bool{true}) || !slices.Equal(s.killed, []types.UID{"a"}) || s.returned != 0 {
		t.Errorf("a is gone: asked %v, killed %v", s.asked, s.killed)
	}
}

func TestSentinelCutOff(t *testing.T) {
	s := newSentry(t, "a", "b")
	s.fenceAfter = time.Minute
	s.cached, s.fresh = []types.UID{"a", "b"}, []types.UID{"a", "b"}
	if err := s.look(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	s.down = true
	s.now = s.now.Add(59 * time.Second)
	if err := s.look(t.Context(), false); err == nil || s.killed != nil || !s.silent {
		t.Errorf("cut off: %v, killed %v", err, s.killed)
	}
	s.now = s.now.Add(time.Second)
	if err := s.look(t.Context(), false); err == nil || !slices.Equal(s.killed, []types.UID{"a", "b"}) {
		t.Errorf("cut off for a minute: %v, killed %v", err, s.killed)
	}
	s.down, s.killed, s.fresh, s.cached = false, nil, []types.UID{"a"}, []types.UID{"a"}
	if err := s.look(t.Context(), false); err != nil || !slices.Equal(s.killed, []types.UID{"b"}) || s.returned != 1 || s.silent {
		t.Errorf("back: %v, killed %v, returned %d", err, s.killed, s.returned)
	}
}

// A node without guests has nothing to ask, and its silence does not count for those that come.
func TestSentinelIdle(t *testing.T) {
	s := newSentry(t)
	s.fenceAfter = time.Minute
	s.down = true
	s.now = s.now.Add(time.Hour)
	if err := s.look(t.Context(), false); err != nil || s.asked != nil || !s.heard.Equal(s.now) {
		t.Errorf("%v, asked %v, heard %s", err, s.asked, s.heard)
	}
}

func TestSentinelRuns(t *testing.T) {
	s := newSentry(t, "a")
	ticks, waits, kick := make(chan time.Time), make(chan time.Duration), newSignal()
	s.tick = func(d time.Duration) <-chan time.Time { waits <- d; return ticks }
	s.kick = kick
	s.down = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	if got := <-waits; got != alarmed {
		t.Errorf("without an answer it waits %s", got)
	}
	s.down, s.cached = false, []types.UID{"a"}
	ticks <- time.Time{}
	if got := <-waits; got != calm {
		t.Errorf("after an answer it waits %s", got)
	}
	kick.call()
	<-waits
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !slices.Equal(s.asked, []bool{true, false, true}) || !slices.Equal(s.killed, []types.UID{"a"}) {
		t.Errorf("asked %v, killed %v", s.asked, s.killed)
	}
}
