package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// inSnapshots puts all disks of a machine on claims of its template that can be snapshotted.
func inSnapshots(d *page.Details) {
	claim := func(name string) v1.Volume {
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = name
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}
	}
	volumes := []v1.Volume{claim("root"), claim("data")}
	d.VM.Spec.Template.Spec.Volumes = volumes
	d.VM.Status.VolumeSnapshotStatuses = []v1.VolumeSnapshotStatus{
		{Name: "root", Enabled: true}, {Name: "data", Enabled: true},
	}
	if d.VMI != nil {
		d.VMI.Spec.Volumes, d.VMI.Status.VolumeStatus = volumes, nil
	}
}

// TestTakeWithMemory takes a snapshot with the guest's memory, as `virtctl snapshot create --memory`, and says before
// it is sent why one cannot have it.
func TestTakeWithMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		onClaims bool
		machine  string
		says     string
		did      string
	}{
		"taken": {
			true, "web", "Take snapshot web-20260102-030405 of VM prod/web with its volumes root, data, with its " +
				"guest's memory? Its guest is paused while its memory is written.",
			"snapshot web-20260102-030405 with memory of prod/web",
		},
		"a guest that is off": {
			true, "off", "Memory: its memory cannot be in the snapshot yet: the guest does not run", "",
		},
		"a volume that was plugged in": {
			false, "db", "Memory: its memory cannot be in the snapshot: volume data was plugged in while the guest ran",
			"",
		},
	} {
		f := &fake{onClaims: c.onClaims}
		a := New(world(f))
		drive(t, a, sizes[2])
		press(t, a, "/", "'"+c.machine, "enter", "t", "up", "right", "ctrl+s")
		if screen := strings.Join(strings.Fields(ansi.Strip(a.screen())), " "); !strings.Contains(screen, c.says) {
			t.Errorf("%s: nothing says %q:\n%s", name, c.says, a.screen())
		}
		press(t, a, "y")
		if got := strings.Join(f.done, ", "); got != c.did {
			t.Errorf("%s: did %q, not %q\n%s", name, got, c.did, a.screen())
		}
		const line = "virtctl snapshot create web web-20260102-030405 --memory --namespace prod"
		if c.did != "" && (len(a.log) != 1 || a.log[0].line != line) {
			t.Errorf("%s: the log has %+v, not %q", name, a.log, line)
		}
		a.Close()
	}
}
