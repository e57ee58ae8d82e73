package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestFormsSayWhatIsLeftOut has volumes with data, and others that are made anew of the spec, which no snapshot has.
func TestFormsSayWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys       []string
		says, isnt string
	}{
		"taken": {
			[]string{"down", "t"}, "Not in it: root. It is no claim, and is made anew of the spec.", "",
		},
		"cloned": {
			[]string{"8", "/", "'partial", "enter", "D"},
			"Not in it, since the snapshot has no data of them: scratch. " +
				"Fresh in it: image, cloudinitdisk; they are no claims, and are made anew of the spec.", "Not in it: ",
		},
		"restored": {
			[]string{"8", "/", "'partial", "enter", "b"},
			"Left out when it was taken: scratch. " +
				"Not in the snapshot: image, cloudinitdisk; they are no claims, and are made anew of the spec.", "",
		},
		"restored, not stopped": {
			[]string{"8", "/", "'partial", "enter", "b"}, "Its guest runs.", "stays off",
		},
		"restored, stopped": {
			[]string{"8", "/", "'partial", "enter", "b", "down", "right"},
			"Its guest is stopped first, and the VM stays off until it is started.", "Its guest runs.",
		},
		"restored, asked": {
			[]string{"8", "/", "'partial", "enter", "b", "down", "right", "ctrl+s"},
			"What was written since is lost. Its guest is stopped first, and the VM stays off until it is started.", "",
		},
	} {
		w := world(&fake{})
		loadSaved(w.Snapshots, &store.Snapshot{
			Namespace: "prod", Name: "partial", Resource: store.Snapshots, Kind: "VirtualMachineSnapshot", UID: "u",
			Created: now, Machine: "web", Phase: "Succeeded", Health: store.Well, Ready: true, Ended: true,
			Included: []string{"root"}, Excluded: []string{"image", "scratch", "cloudinitdisk"},
			Indications: [][2]string{
				{"PartialSnapshot", "Volumes with data were left out: scratch (no class of image)."},
			},
		})
		a := New(w)
		drive(t, a, sizes[1])
		press(t, a, c.keys...)
		screen := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
		if !strings.Contains(screen, c.says) || c.isnt != "" && strings.Contains(screen, c.isnt) {
			t.Errorf("%s: not %q, or %q is shown:\n%s", name, c.says, c.isnt, a.screen())
		}
		a.Close()
	}
}
