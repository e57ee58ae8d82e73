package app

import (
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// TestSuspend goes back to the shell from wherever one is; what was typed is there afterwards.
func TestSuspend(t *testing.T) {
	for name, keys := range map[string][]string{
		"a table": nil, "a question": {"down", "ctrl+d", "'we"}, "a prompt": {"/", "'we"},
		"a form": {"+", "'new-one"}, "details": {"enter"},
	} {
		a := New(world(&fake{}))
		suspended := 0
		a.Suspend = func() tea.Msg { suspended++; return nil }
		drive(t, a, sizes[1])
		press(t, a, keys...)
		before := a.screen()
		press(t, a, "ctrl+z")
		if suspended != 1 || a.screen() != before {
			t.Errorf("%s: suspended %d times, and then\n%s", name, suspended, ansi.Strip(a.screen()))
		}
		a.Close()
	}
}
