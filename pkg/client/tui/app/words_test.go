package app

import (
	"errors"
	"strings"
	"testing"
)

// TestErrorsAreInWordsEverywhere: what the line at the bottom says of an error, the log says too.
func TestErrorsAreInWordsEverywhere(t *testing.T) {
	t.Parallel()
	f := &fake{err: errors.New("dial tcp 10.0.0.1:6443: connect")}
	a := New(world(f))
	a.World.Explain = func(error) string { return "the cluster cannot be reached" }
	drive(t, a, sizes[1])
	press(t, a, "down", "X", "y", "L")
	if s := a.screen(); strings.Contains(s, "dial tcp") || strings.Count(s, "the cluster cannot be reached") < 2 {
		t.Errorf("the log has Go's words:\n%s", s)
	}
	press(t, a, "esc", "esc", ":", "'undo", "enter")
	if a.notice != "The cluster cannot be reached" {
		t.Errorf(":undo says %q", a.notice)
	}
}
