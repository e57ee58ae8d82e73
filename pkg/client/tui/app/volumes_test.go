package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestVolumesComeAndGo drives the form and the page of plugged volumes, from the list, the palette and a machine's
// page, to what is asked of the server and to the command lines in the log.
func TestVolumesComeAndGo(t *testing.T) {
	t.Parallel()
	plugged := func(o volume.Options) string { return fmt.Sprintf("plug prod/web %+v", o) }
	for name, c := range map[string]struct {
		keys       []string
		want, line string
	}{
		"asks first":             {[]string{"down", "P", "'scratch", "ctrl+s"}, "", ""},
		"not agreed":             {[]string{"down", "P", "'scratch", "ctrl+s", "enter"}, "", ""},
		"a name that a disk has": {[]string{"down", "P", "'data", "ctrl+s", "y", "esc"}, "", ""},
		"a claim that was typed": {
			[]string{"down", "P", "'scratch", "ctrl+s", "y"},
			plugged(volume.Options{Volume: "scratch"}),
			"virtctl addvolume web --volume-name scratch --namespace prod",
		},
		"a claim that was found": {
			[]string{"down", "P", "'shared", "down", "enter", "ctrl+s", "y"},
			plugged(volume.Options{Volume: "scratch-shared"}),
			"virtctl addvolume web --volume-name scratch-shared --namespace prod",
		},
		"until restart, with all there is to say": {
			[]string{
				"down", "enter", "P", "down", "down", "tab", "right", "tab", "tab", "space", "tab", "'more", "tab",
				"'S 1", "tab", "right", "right", "ctrl+s", "y",
			},
			plugged(volume.Options{
				Volume: "scratch", Disk: "more", Instance: true, Bus: "virtio", Serial: "S 1", Cache: "writethrough",
			}),
			"virtctl addvolume vmi/web --volume-name scratch --bus virtio --disk-name more --serial 'S 1' --cache " +
				"writethrough --namespace prod",
		},
		"by the palette": {
			[]string{"down", ":", "'plug", "enter", "'scratch", "ctrl+s", "y"},
			plugged(volume.Options{Volume: "scratch"}),
			"virtctl addvolume web --volume-name scratch --namespace prod",
		},
		"nothing chosen": {[]string{"down", "P", "ctrl+s", "y"}, "", ""},
		"a disc on virtio": {
			[]string{"down", "P", "'data", "tab", "tab", "right", "tab", "right", "ctrl+s", "esc"}, "", "",
		},
		"a name that no disk has": {[]string{"down", "P", "'installer.iso", "ctrl+s", "esc"}, "", ""},
		"until restart of nothing": {
			[]string{"/", "'off", "enter", "P", "'data", "tab", "right", "ctrl+s", "esc"}, "", "",
		},
		"left without a word": {[]string{"down", "P", "'data", "esc", "esc"}, "", ""},
		"unplug asks":         {[]string{"down", "U", "enter"}, "", ""},
		"unplug agreed": {
			[]string{"down", "enter", "U", "U", "y"},
			"unplug data of prod/web, instance false",
			"virtctl removevolume web --volume-name data --namespace prod",
		},
	} {
		f := &fake{}
		a := New(world(f))
		press(t, a, c.keys...)
		if got := strings.Join(f.done, ", "); got != c.want {
			t.Errorf("%s: did %q, not %q\n%s", name, got, c.want, a.screen())
		}
		if c.want == "" {
			continue
		}
		if len(a.log) != 1 || a.log[0].line != c.line {
			t.Errorf("%s: the log has %+v, not %q", name, a.log, c.line)
		}
		if _, form := a.top().(*page.Plug); form ||
			!strings.Contains(a.notice, "on its way") && !strings.Contains(a.notice, "On its way") {
			t.Errorf("%s: shows %s, with %q", name, a.top().Title(), a.notice)
		}
	}
}

// TestVolumeOfAStoppedVM is there with the VM's next start, and nothing is under way.
func TestVolumeOfAStoppedVM(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	press(t, a, "/", "'off", "enter", "P", "'scratch", "ctrl+s", "y")
	if want := "test/off has volume scratch with its next start"; !strings.Contains(a.notice, want) {
		t.Errorf("%q, not %q", a.notice, want)
	}
}

// TestVolumesAreNotChanged tries what the dashboard or the server refuses.
func TestVolumesAreNotChanged(t *testing.T) {
	t.Parallel()
	f := &fake{forbidden: "you may not"}
	a := New(world(f))
	press(t, a, "down", "P", "U")
	if len(a.stack) > 1 || a.notice != "You may not" {
		t.Errorf("shows %s, %q", a.top().Title(), a.notice)
	}
	f = &fake{}
	w := world(f)
	a = New(w)
	press(t, a, "down", "P", "'data")
	w.ReadOnly = true
	press(t, a, "ctrl+s", "y", "esc", "P", "U")
	if len(f.done) > 0 || len(a.stack) > 1 || !strings.Contains(a.notice, "--read-only") {
		t.Errorf("did %v, shows %s, %q", f.done, a.top().Title(), a.notice)
	}
	// What the server says is shown, and the form stays as it was.
	a = New(world(f))
	press(t, a, "down", "P", "'scratch")
	f.err = errors.New("the claim is of another kind")
	press(t, a, "ctrl+s", "y")
	drive(t, a, sizes[1])
	if s := a.screen(); !strings.Contains(s, "the claim is of another kind") ||
		!strings.Contains(s, "plug into prod/web") {
		t.Errorf("the error is not shown:\n%s", s)
	}
	press(t, a, "esc")
	f.err = nil
	press(t, a, "ctrl+s", "y")
	if len(f.done) != 2 || f.done[0] != f.done[1] {
		t.Errorf("did %v", f.done)
	}
	// Without a right to list claims a name can be typed.
	f = &fake{err: errors.New("claims are forbidden")}
	a = New(world(f))
	press(t, a, "down", "P")
	drive(t, a, tea.PasteMsg{Content: " unseen\n"})
	if s := a.screen(); !strings.Contains(s, "claims are forbidden") {
		t.Errorf("nothing says why there are no claims:\n%s", s)
	}
	f.err = nil
	press(t, a, "enter", "ctrl+s", "y")
	if got := strings.Join(f.done, ", "); got != fmt.Sprintf("plug prod/web %+v", volume.Options{Volume: "unseen"}) {
		t.Errorf("did %q", got)
	}
}
