package app

import (
	"context"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestFormsOnShortScreens goes through the fields of every form: the one that keys go to is on the screen, and so is
// what keeps the form from being sent.
func TestFormsOnShortScreens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields []string
		// says is what the verdict begins with, of any of these words.
		says []string
	}{
		"form": {
			strings.Split("Name,Namespace,Instance type,Preference,CPUs,Memory,Container disk,Claim,Import,Empty disk,"+
				"Run strategy,User,Password,SSH key,Credentials,Sysprep,cloud-init,User data,Network data,Networks,"+
				"IP addresses,MAC address,Type from,Preference from,Disk bus,Grace period", ","),
			[]string{"A name and a disk", "Name: give one"},
		},
		"plug": {
			strings.Split("Claim,Lasts,Disk type,Bus,Disk name,Serial,Cache", ","),
			[]string{"Choose a claim", "Disk name: the machine has"},
		},
		"resize": {[]string{"Volume", "Size"}, []string{"Size: give one"}},
		"move":   {[]string{"To class", "Volumes"}, []string{"To class: name a"}},
		"take": {
			[]string{"Name", "Fails after", "If deleted", "Volumes", "Memory"},
			[]string{"^s takes the snapshot", "Volumes: "},
		},
		"restore":  {[]string{"VM", "If it runs", "Claims", "They stay", "The old ones"}, []string{"VM web runs"}},
		"clone":    {[]string{"New VM"}, []string{"Name: give one"}},
		"image-vm": {[]string{"Name", "Disk"}, []string{"Name: give one"}},
		"export":   {[]string{"File"}, []string{"^s exports it"}},
	} {
		for _, height := range []int{24, 16, 12, 9, 7} {
			w := imageWorld(&fake{})
			w.Namespace = "prod"
			a := New(w)
			drive(t, a, tea.WindowSizeMsg{Width: 80, Height: height}, page.Open{Page: everyPage[name](w)})
			for _, field := range c.fields {
				screen := ansi.Strip(a.screen())
				said := false
				for _, text := range c.says {
					said = said || strings.Contains(screen, text)
				}
				if lines := strings.Split(strings.TrimRight(screen, "\n"), "\n"); len(lines) != height {
					t.Errorf("%s on %d lines has %d", name, height, len(lines))
				}
				if !strings.Contains(screen, field) || !said {
					t.Errorf("%s on %d lines, at %s, which is there: %t; the verdict: %t\n%s", name, height, field,
						strings.Contains(screen, field), said, screen)
				}
				press(t, a, "tab")
			}
		}
	}
}

// TestLongFormScrolls: what is said below the fields of a form can be read on a short screen, too.
func TestLongFormScrolls(t *testing.T) {
	t.Parallel()
	w := imageWorld(&fake{})
	a := New(w)
	drive(t, a, tea.WindowSizeMsg{Width: 80, Height: 14}, page.Open{Page: everyPage["restore"](w)})
	const last = "Its claims get new names."
	if screen := ansi.Strip(a.screen()); strings.Contains(screen, last) || !strings.Contains(screen, "more (pgdn)") {
		t.Fatalf("it is not long:\n%s", screen)
	}
	for range 9 {
		drive(t, a, tea.KeyPressMsg{Code: tea.KeyPgDown})
		a.screen()
	}
	if screen := ansi.Strip(a.screen()); !strings.Contains(screen, last) || !strings.Contains(screen, "VM web runs") {
		t.Errorf("its end is not there:\n%s", screen)
	}
}

// TestDraftOutlivesTheNamespace: what was typed into the form is there again when another namespace is shown, whose
// name the form has unless one was typed.
func TestDraftOutlivesTheNamespace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ keys, want []string }{
		"another": {[]string{"+", "'typed"}, []string{"typed", "test"}},
		"its own": {[]string{"+", "'typed", "down", "backspace", "backspace", "'x"}, []string{"typed", "prx"}},
	} {
		w := world(&fake{})
		w.Namespace = "prod"
		a := New(w)
		a.Switch = func(s page.Scope) (*page.World, error) {
			other := world(&fake{})
			other.Scope = s
			return other, nil
		}
		a.Namespaces = func(context.Context) []string { return []string{"all", "prod", "test"} }
		drive(t, a, sizes[1])
		press(t, a, c.keys...)
		press(t, a, "esc", ":", "'ns test", "enter", "+")
		screen := ansi.Strip(a.screen())
		for i, title := range []string{"Name", "Namespace"} {
			value := ""
			for line := range strings.Lines(screen) {
				if rest, is := strings.CutPrefix(strings.TrimLeft(line, "! "), title+" "); is {
					value = strings.Fields(rest)[0]
				}
			}
			if value != c.want[i] {
				t.Errorf("%s: %s is %q, not %q:\n%s", name, title, value, c.want[i], screen)
			}
		}
	}
}
