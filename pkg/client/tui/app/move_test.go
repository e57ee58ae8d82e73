package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// settle has a guest's disk on claim data be one that was there at its start, with limits.
func settle(d *page.Details) {
	limits := map[string]string{"disk.virtkit.io/data": "iops=500", "interface.virtkit.io/default": "in=10Mi"}
	d.VMI.Annotations = limits
	d.VMI.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{
		{Name: "default", InterfaceName: "eth0", IP: "10.42.0.7"}, {Name: "more", InterfaceName: "eth1"},
	}
	onClaim(d, "data")
	for i := range d.VMI.Status.VolumeStatus {
		if s := &d.VMI.Status.VolumeStatus[i]; s.Name == "data" {
			s.PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: "data"}
		}
	}
}

// exchange has it be copied to another claim.
func exchange(d *page.Details) {
	strategy := v1.UpdateVolumesStrategyMigration
	d.VM.Spec.UpdateVolumesStrategy = &strategy
	onClaim(d, "data-m1")
	d.VMI.Status.Phase = v1.Running
}

func onClaim(d *page.Details, claim string) {
	d.VMI.Spec.Volumes[1] = *volumemigration.OnClaim("data", claim)
	d.VM.Spec.Template.Spec.Volumes[1] = *volumemigration.OnClaim("data", claim)
}

// TestMove drives the page from the list to what is asked of the server and to the command line in the log.
func TestMove(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		copying    bool
		keys       []string
		want, line string
	}{
		"asks first":     {keys: []string{"'fast", "ctrl+s"}},
		"not agreed":     {keys: []string{"'fast", "ctrl+s", "enter"}},
		"no class":       {keys: []string{"ctrl+s", "y", "esc"}},
		"another volume": {keys: []string{"'fast", "down", "'root", "ctrl+s", "esc"}},
		"all": {
			keys: []string{"'fast", "ctrl+s", "y"}, want: `move [] of prod/web to fast`,
			line: "virtctl volume migrate web --storage-class fast --namespace prod",
		},
		"one": {
			keys: []string{"'fast", "down", "'data", "ctrl+s", "y"}, want: `move ["data"] of prod/web to fast`,
			line: "virtctl volume migrate web data --storage-class fast --namespace prod",
		},
		"taken back": {
			copying: true, keys: []string{"ctrl+s", "y"}, want: "cancel the move of prod/web",
			line: "virtctl volume migrate web --cancel --namespace prod",
		},
	} {
		f := &fake{moves: true, copying: c.copying}
		a := New(world(f))
		t.Cleanup(a.Close)
		press(t, a, append([]string{"down", "z"}, c.keys...)...)
		if got := strings.Join(f.done, ", "); got != c.want {
			t.Errorf("%s: did %q, not %q\n%s", name, got, c.want, a.screen())
		}
		if c.want != "" && (len(a.log) != 1 || a.log[0].line != c.line) {
			t.Errorf("%s: the log has %+v, not %q", name, a.log, c.line)
		}
	}
}

// TestMoveIsRefused: what cannot be copied is said, and nothing is asked of the server.
func TestMoveIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    *fake
		keys []string
		want string
	}{
		"unknown":   {&fake{}, []string{"down", "z", "'fast", "down", "'data", "ctrl+s"}, "data cannot be copied"},
		"stopped":   {&fake{}, []string{"/", "'off", "enter", "z", "'fast", "ctrl+s"}, "The guest does not run"},
		"forbidden": {&fake{forbidden: "you may not"}, []string{"down", "z"}, "You may not"},
	} {
		a := New(world(c.f))
		t.Cleanup(a.Close)
		drive(t, a, sizes[2])
		press(t, a, c.keys...)
		if screen := ansi.Strip(a.screen()); len(c.f.done) > 0 || !strings.Contains(screen, c.want) {
			t.Errorf("%s: did %v, and says\n%s", name, c.f.done, screen)
		}
	}
}

// TestMovePictures has the page of a guest whose disk can be copied, is being copied, and the limits of a machine.
func TestMovePictures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    *fake
		keys []string
		want []string
	}{
		"move-settled": {&fake{moves: true}, []string{"down", "z", "'fast"}, []string{
			"data is claim data", "copies them",
		}},
		"move-copying": {&fake{moves: true, copying: true}, []string{"down", "z"}, []string{
			"data is copied from claim data to claim data-m1", "takes the copy back",
		}},
		"machine-limits": {&fake{moves: true}, []string{"down", "enter"}, []string{"in=10Mi", "iops=500"}},
	} {
		a := New(world(c.f))
		t.Cleanup(a.Close)
		drive(t, a, sizes[2])
		press(t, a, c.keys...)
		screen := a.screen()
		golden(t, name, a)
		for _, want := range c.want {
			if !strings.Contains(strings.Join(strings.Fields(ansi.Strip(screen)), " "), want) {
				t.Errorf("%s lacks %q:\n%s", name, want, screen)
			}
		}
	}
}
