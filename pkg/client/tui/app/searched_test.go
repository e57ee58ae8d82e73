package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestFilterFindsWhatIsAsked: the CPUs and the memory that a row shows are found; of what moves, such as ages, the page
// says that it is not searched.
func TestFilterFindsWhatIsAsked(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	defer a.Close()
	drive(t, a, sizes[1])
	press(t, a, "/", "'off 1Gi", "enter")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "VMs 1/4 that match off 1Gi") {
		t.Errorf("the memory of a stopped VM is not found:\n%s", s)
	}
	press(t, a, "esc", "/", "'777d", "enter")
	words := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
	if want := "What moves in CPU, MEMORY, AGE is not searched"; !strings.Contains(words, want) {
		t.Errorf("nothing of %q in\n%s", want, words)
	}
	press(t, a, "esc", "/", "'-l no=such", "enter")
	if s := a.screen(); strings.Contains(s, "is not searched") {
		t.Errorf("a label selector searches no column:\n%s", s)
	}
}
