package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// shown waits until the screen has a text, and tells the pages of what has changed meanwhile.
func shown(t *testing.T, a *App, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if strings.Contains(ansi.Strip(a.screen()), text) {
			return
		}
		drive(t, a, Changed{})
	}
	t.Fatalf("no %q in\n%s", text, a.screen())
}

func TestSplitFrames(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*fake{
		"split":       {},
		"split-stale": {lose: true},
		"split-error": {err: errors.New("it is stopped")},
	} {
		for _, size := range sizes {
			a := New(world(f))
			drive(t, a, size)
			press(t, a, "down", "C")
			switch {
			case f.err != nil:
				shown(t, a, "it is stopped")
			case f.lose:
				shown(t, a, "web login:")
				press(t, a, "x")
				shown(t, a, "STALE")
			default:
				shown(t, a, "web login:")
			}
			golden(t, sized(name, size), a)
			a.Close()
		}
	}
	w := world(&fake{})
	w.ReadOnly = true
	a := New(w)
	press(t, a, "down", "C")
	shown(t, a, "web login:")
	press(t, a, "x")
	golden(t, "split-read-only", a)
	a.Close()
}

func TestSplitTakesEveryKey(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	drive(t, a, sizes[0])
	press(t, a, "down", "C")
	shown(t, a, "web login:")
	press(t, a, "'root", "esc", "enter", "q", ":", "ctrl+c", "up", "space")
	drive(t, a, tea.PasteMsg{Content: "a\nend"})
	shown(t, a, "END")
	press(t, a, "ctrl+]")
	if got := a.top().Title(); !strings.HasPrefix(got, "VMs") {
		t.Fatalf("the escape leaves %q on top", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if got, want := string(f.sent), "root\x1b\rq:\x03\x1b[A a\rend"; got != want {
		t.Errorf("the guest got %q, not %q", got, want)
	}
}

func TestSplitWithoutAConnection(t *testing.T) {
	t.Parallel()
	f := &fake{lose: true}
	a := New(world(f))
	press(t, a, "down", "C")
	shown(t, a, "web login:")
	press(t, a, "x")
	shown(t, a, "STALE")
	press(t, a, "'quit")
	if a.notice == "" {
		t.Error("what was typed is lost, and nothing says so")
	}
	if _, is := a.top().(*page.Split); !is {
		t.Fatalf("keys that were for the guest opened %q", a.top().Title())
	}
	press(t, a, "esc")
	if _, is := a.top().(*page.Split); is {
		t.Error("esc stays")
	}
	a = New(world(&fake{err: errors.New("taken over by somebody")}))
	press(t, a, "down", "C")
	shown(t, a, "Closed")
	a.World.Actions.(*fake).err = nil
	press(t, a, "enter")
	shown(t, a, "web login:")
	a.Close()
}

func TestWhatTheGuestWroteBefore(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	drive(t, a, sizes[0])
	press(t, a, "down", "C")
	shown(t, a, "web login:")
	drive(t, a, tea.PasteMsg{Content: "first" + strings.Repeat("\n\x1bD", 60) + "last"})
	shown(t, a, "LAST")
	for range 20 {
		drive(t, a, tea.MouseWheelMsg{Button: tea.MouseWheelUp})
		a.screen()
	}
	shown(t, a, "FIRST")
	press(t, a, "x")
	shown(t, a, "LASTX")
	a.Close()
}
