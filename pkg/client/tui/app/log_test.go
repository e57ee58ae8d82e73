package app

import (
	"context"
	"strings"
	"testing"

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
