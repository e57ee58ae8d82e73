package app

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestUndo takes the last verb back by the palette, once it was asked.
func TestUndo(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	press(t, a, ":", "'undo", "enter")
	if a.ask == nil || a.ask.Question != "Undo the stop of prod/web, asked 60s ago?" {
		t.Fatalf("asks %+v, says %q", a.ask, a.notice)
	}
	press(t, a, "n")
	press(t, a, ":", "'undo", "enter", "y")
	if !slices.Equal(f.done, []string{"undo 17"}) {
		t.Errorf("did %q", f.done)
	}
	if got := a.log[len(a.log)-1].line; got != "virtctl undo 17" {
		t.Errorf("the log has %q", got)
	}
	f.err = errors.New("nothing to undo: no lifecycle verb was asked")
	press(t, a, ":", "'undo", "enter")
	if a.ask != nil || !strings.HasPrefix(a.notice, "Nothing to undo") {
		t.Errorf("asks %+v, says %q", a.ask, a.notice)
	}
	a.World.ReadOnly, f.err = true, nil
	press(t, a, ":", "'undo", "enter")
	if a.ask != nil || !strings.Contains(a.notice, "--read-only") {
		t.Errorf("read-only: asks %+v, says %q", a.ask, a.notice)
	}
}

// TestUndoQuestion asks for a restore in the user's words, and says what becomes of the VM.
func TestUndoQuestion(t *testing.T) {
	t.Parallel()
	for verb, want := range map[lifecycle.Verb]string{
		lifecycle.Stop: "Undo the stop of VM prod/web, asked 3m ago?",
		lifecycle.RestoreKeep: "Undo the restore of VM prod/web, asked 3m ago? Its spec is as before, and its " +
			"volumes are those that were kept.",
	} {
		if got := undoQuestion(&page.Undoable{Verb: verb, Machines: "VM prod/web"}, "3m"); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
