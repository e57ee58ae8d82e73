package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestLogBeginsWithTheNewest shows what was done last without scrolling, and follows what is going on.
func TestLogBeginsWithTheNewest(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, sizes[0])
	do := func(context.Context) error { return nil }
	for range 40 {
		drive(t, a, page.Task{Line: "virtctl stop old", Do: do})
	}
	release := make(chan struct{})
	cmd := a.start(page.Task{Line: "virtctl stop new", Do: func(context.Context) error { <-release; return nil }})
	press(t, a, "L")
	s := a.screen()
	if first := strings.Index(s, "stop new"); first < 0 || first > strings.Index(s, "stop old") ||
		!strings.Contains(s, "going on") {
		t.Errorf("the newest is not the first:\n%s", s)
	}
	close(release)
	run(t, a, cmd, 0)
	drive(t, a, page.Tick(now))
	if s := a.screen(); strings.Contains(s, "going on") {
		t.Errorf("what has ended is still going on:\n%s", s)
	}
}

// TestWaitingIsSaid has the bottom line say for how long a command has gone on, until it has ended.
func TestWaitingIsSaid(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	at := now
	a.World.Now = func() time.Time { return at }
	release := make(chan struct{})
	cmd := a.start(page.Task{
		Line: "virtctl stop a b c", Brief: "virtctl stop of 3 machines",
		Do: func(context.Context) error { <-release; return nil },
	})
	said := func() string {
		lines := strings.Split(ansi.Strip(a.screen()), "\n")
		return strings.TrimSpace(lines[len(lines)-1-len(a.footer(a.theme()))])
	}
	if got := said(); got != "virtctl stop of 3 machines" {
		t.Errorf("at first it says %q", got)
	}
	at = now.Add(12 * time.Second)
	if got := said(); got != "Waiting 12s for: virtctl stop of 3 machines" {
		t.Errorf("later it says %q", got)
	}
	close(release)
	run(t, a, cmd, 0)
	if got := said(); strings.Contains(got, "Waiting") || !strings.Contains(got, "virtctl stop of 3 machines") {
		t.Errorf("at last it says %q", got)
	}
}
