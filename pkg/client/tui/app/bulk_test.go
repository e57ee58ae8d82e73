package app

import (
	"slices"
	"testing"
)

// TestSeveralAreOneAction has one undo for all that are marked.
func TestSeveralAreOneAction(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	press(t, a, "/", "'prod", "enter", "*", "X", "y")
	if want := []string{"stop prod/db", "stop prod/web"}; f.calls != 1 || !slices.Equal(f.done, want) {
		t.Errorf("did %q in %d calls", f.done, f.calls)
	}
}
