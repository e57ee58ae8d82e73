package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestKeyOfTheSamePageStays goes to the page that is shown already: the cursor stays on its machine, and the next key
// is about that one.
func TestKeyOfTheSamePageStays(t *testing.T) {
	t.Parallel()
	for _, again := range [][]string{{"1"}, {":", "'vms", "enter"}, {"enter", "1"}} {
		a := New(world(&fake{}))
		drive(t, a, sizes[1])
		press(t, a, "1", "down", "2", "1") // where the user was before
		press(t, a, "down", "down")
		under := func() string {
			press(t, a, "Y")
			title := ansi.Strip(strings.Split(a.screen(), "\n")[2])
			press(t, a, "esc")
			return title
		}
		before := under()
		press(t, a, again...)
		if after := under(); after != before {
			t.Errorf("%q moves the cursor: %q, not %q", again, after, before)
		}
	}
}
