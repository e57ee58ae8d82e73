package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestClaimThatIsBeingDeleted says on the pages of a machine's volumes that a claim is being deleted, and what is lost,
// and plugs none in.
func TestClaimThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ending string
		keys   []string
		want   []string
	}{
		"plug": {"scratch", []string{"down", "P", "'scratch", "ctrl+s"}, []string{
			"✗ Terminating", "Claim: scratch is being deleted, and no guest can have it any more",
		}},
		"unplug": {"data", []string{"down", "U"}, []string{"✗ claim Terminating"}},
		"unplug, asked": {"data", []string{"down", "U", "enter"}, []string{
			"Deletion of claim data is under way: the data is lost.",
		}},
		"resize": {"data", []string{"down", "Z"}, []string{
			"Claim data is being deleted: its data is lost once the guest stops or no longer has it.",
		}},
	} {
		for _, ends := range []bool{true, false} {
			f := &fake{}
			if ends {
				f.ending = c.ending
			}
			a := New(world(f))
			t.Cleanup(a.Close)
			drive(t, a, sizes[2])
			press(t, a, c.keys...)
			screen := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
			for _, want := range c.want {
				if strings.Contains(screen, want) != ends {
					t.Errorf("%s, deleted %t: %q is shown wrongly:\n%s", name, ends, want, a.screen())
				}
			}
		}
	}
}
