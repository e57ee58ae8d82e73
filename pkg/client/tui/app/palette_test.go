package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestPaletteKnowsNoCase: the names of pages are found as the bar has them, too.
func TestPaletteKnowsNoCase(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{"VMs": "1", "Nodes": "2", "EVENTS": "4"} {
		a := New(world(&fake{}))
		drive(t, a, sizes[0])
		press(t, a, "3", ":", "'"+typed)
		if s := ansi.Strip(a.screen()); !strings.Contains(s, strings.ToLower(typed)+"  ") {
			t.Errorf("%s is not among what may be meant:\n%s", typed, s)
		}
		press(t, a, "enter")
		if a.place != want || a.notice != "" {
			t.Errorf("%s: at %s, says %q", typed, a.place, a.notice)
		}
		a.Close()
	}
}

// TestHelpHasTheMouse: what a click does is in no key bar, so the help says it.
func TestHelpHasTheMouse(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	defer a.Close()
	drive(t, a, sizes[2])
	press(t, a, "?", "G")
	for _, want := range []string{"The mouse", "double click", "wheel", "most terminals select text"} {
		if s := ansi.Strip(a.screen()); !strings.Contains(s, want) {
			t.Errorf("nothing of %q in\n%s", want, s)
		}
	}
}
