package launcher

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
)

func expectState(t *testing.T, g *guest, want lifecycle.State) {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := g.life.Now(); got != want {
		t.Fatalf("state %v, want %v", got, want)
	}
}

// An illegal transition changes nothing, and the log and the metric have their number.
func TestIllegalTransition(t *testing.T) {
	var out bytes.Buffer
	g := newGuest(nil, "", slog.New(slog.NewTextHandler(&out, nil)))
	for range 2 {
		g.applyLocked(lifecycle.StartHandoff)
	}
	if g.life.Now() != lifecycle.None || g.illegal() != 2 {
		t.Errorf("state %v, %d illegal", g.life.Now(), g.illegal())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{"count=1", "count=2"} {
		if len(lines) != 2 || !strings.Contains(lines[i], "illegal transition: startHandoff in state none") ||
			!strings.Contains(lines[i], want) || !strings.Contains(lines[i], "level=ERROR") {
			t.Fatalf("log %q", lines)
		}
	}
}

// A guest that is being started where it has arrived may have run: it is shut down like any other, and its termination
// message do not say that it never ran.
func TestShutdownWhileTakenOver(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		expectGuest(t, m, g, here)
		m.mu.Lock()
		m.resumeErr = errors.New("no lock")
		m.mu.Unlock()
		done := make(chan error, 1)
		go func() { done <- g.takeOver(t.Context(), false) }()
		time.Sleep(takeOverPause / 2) // of the bubble
		expectState(t, g, lifecycle.TakenOver)
		g.shutdown(0)
		expect(t, g, destroyed, "destroyed")
		time.Sleep(takeOverPause) // of the bubble
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !g.mayHaveRun() || g.neverRanHere() {
			t.Error("the source would hear that it never ran")
		}
	})
}

// withReleased runs a test with a guest that its source has let go, and that could not be started yet.
func withReleased(t *testing.T, test func(t *testing.T, m *memory, g *guest, n *notes)) {
	t.Helper()
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		n := &notes{}
		g.note = n.note
		expectGuest(t, m, g, here)
		n.err = errors.New("no space")
		if err := g.takeOver(t.Context(), false); err == nil {
			t.Fatal("the termination message is not taken back, and yet it is started")
		}
		expectState(t, g, lifecycle.Released)
		test(t, m, g, n)
	})
}

// One that was called off is not started any more, and the source hears that it never ran.
func TestReleasedAndCalledOff(t *testing.T) {
	withReleased(t, func(t *testing.T, m *memory, g *guest, n *notes) {
		n.err = nil
		g.shutdown(time.Minute)
		expect(t, g, shutOff, names.ReasonNeverRan)
		if err := g.takeOver(t.Context(), false); err != nil {
			t.Error(err)
		}
		if m.domain.Run != hypervisor.Paused || g.mayHaveRun() || !g.neverRanHere() {
			t.Errorf("domain %v, started %t", m.domain, g.mayHaveRun())
		}
		if got := n.get(); got != neverRan {
			t.Errorf("termination message %+v", got)
		}
	})
}

// A daemon that comes back finds it standing still. It is not this launcher's before its termination message is taken
// back: else the source would hear that it never ran, and let its own go on.
func TestReleasedAndDaemonComesBack(t *testing.T) {
	withReleased(t, func(t *testing.T, m *memory, g *guest, n *notes) {
		m.crash()
		synctest.Wait()
		m.restart()
		expect(t, g, none, "")
		if g.exists() {
			t.Error("it can be unpaused by its user")
		}
		n.err = nil
		if err := g.takeOver(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		expect(t, g, runs, "unpaused")
		if !g.mayHaveRun() {
			t.Error("the source would hear that it never ran")
		}
	})
}

// One that runs here without having been asked for is here: nothing says any more that it never ran.
func TestReceivedAndRuns(t *testing.T) {
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		n := &notes{}
		g.note = n.note
		expectGuest(t, m, g, here)
		if got := n.get(); got != neverRan {
			t.Errorf("termination message %+v", got)
		}
		m.change(func(d *hypervisor.Domain) { d.Run, d.Reason = hypervisor.Running, "unpaused" })
		expect(t, g, runs, "unpaused")
		if got := n.get(); got != (termination.Message{}) {
			t.Errorf("termination message %+v", got)
		}
		if !g.mayHaveRun() {
			t.Error("the source would hear that it never ran")
		}
	})
}
