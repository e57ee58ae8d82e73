package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
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

// TestBulkIsSaidBriefly: when many machines were changed the line at the bottom says how many, and the log has the
// command.
func TestBulkIsSaidBriefly(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	defer a.Close()
	var vms []v1.VirtualMachine
	for n := range 15 {
		vms = append(vms, v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: fmt.Sprintf("bulk-%02d", n),
		}})
	}
	a.World.Machines.Load(vms, nil)
	drive(t, a, sizes[0])
	drive(t, a, Changed{})
	press(t, a, "*", "ctrl+d", "'15", "enter")
	if want := "✓ virtctl delete of 15 machines; L has the command"; a.notice != want {
		t.Errorf("says %q, not %q", a.notice, want)
	}
	press(t, a, "L")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "virtctl delete bulk-00 bulk-01") {
		t.Errorf("the log does not have the command:\n%s", s)
	}
}
