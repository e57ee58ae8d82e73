package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// editorOf leaves one text after the other, and keeps what it was given.
func editorOf(a *App, given *[]string, texts ...string) {
	a.editing = func(e page.EditText) tea.Cmd {
		*given = append(*given, e.Text)
		if len(texts) == 0 {
			return page.Send(e.Done(e.Text, nil))
		}
		text := texts[0]
		texts = texts[1:]
		return page.Send(e.Done(text, nil))
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		texts, keys []string
		edited      int
		want, shown string
	}{
		"applied": {
			[]string{"kind: VirtualMachine\n"}, []string{"a", "y"}, 1, "apply kind: VirtualMachine\n", "VMs 4 ",
		},
		"not agreed":              {[]string{"kind: VirtualMachine\n"}, []string{"a", "n"}, 1, "", "restart"},
		"left as it was":          {nil, nil, 1, "", "Nothing was changed"},
		"rejected, then given up": {[]string{"wrong\n"}, []string{"a"}, 2, "", "unknown field"},
		"rejected, then put right": {
			[]string{"wrong\n", "# Error: x\nright\n"}, []string{"a", "y"}, 2, "apply right\n", "VMs 4 ",
		},
		"once more before it is done": {
			[]string{"first\n", "second\n"}, []string{"e", "a", "y"}, 2, "apply second\n", "VMs 4 ",
		},
	} {
		f := &fake{}
		a := New(world(f))
		var given []string
		editorOf(a, &given, c.texts...)
		press(t, a, append([]string{"down", "e"}, c.keys...)...)
		if got := strings.Join(f.done, ", "); got != c.want {
			t.Errorf("%s: did %q, not %q", name, got, c.want)
		}
		if len(given) != c.edited {
			t.Errorf("%s: the editor was opened %d times, not %d: %q", name, len(given), c.edited, given)
		}
		if !strings.Contains(ansi.Strip(a.screen()), c.shown) {
			t.Errorf("%s: nothing of %q in\n%s", name, c.shown, a.screen())
		}
		if c.edited > 1 && strings.HasPrefix(name, "rejected") &&
			!strings.Contains(given[1], "# Error: spec.wrong: unknown field") {
			t.Errorf("%s: the editor is not told: %q", name, given[1])
		}
	}
}

// TestEditOutdated: what was typed to an object that others have changed meanwhile is kept in a file, and e opens the
// object as it is now. A text that the server rejects, or that could not be stored, is kept as well.
func TestEditOutdated(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	var kept, given []string
	a.World.KeepText = func(text string) (string, error) {
		kept = append(kept, text)
		return fmt.Sprintf("/tmp/kept-%d.yaml", len(kept)), nil
	}
	shows := func(step string, words ...string) {
		t.Helper()
		for _, word := range words {
			if screen := ansi.Strip(a.screen()); !strings.Contains(screen, word) {
				t.Errorf("%s: nothing of %q in\n%s", step, word, screen)
			}
		}
	}
	editorOf(a, &given, "outdated: 1\n", "wrong\n", "wrong\n", "good: 1\n")
	press(t, a, "down", "e")
	shows("others changed it", "changed by others", "What you typed is in /tmp/kept-1.yaml", "e reads the object anew")
	press(t, a, "e") // opens the object, then, as that is rejected and left so, the text
	fresh := "# What you typed before is in /tmp/kept-1.yaml\nkind: VirtualMachine\n"
	if len(given) != 3 || !strings.Contains(given[1], fresh) {
		t.Fatalf("the editor was given %q", given)
	}
	shows("rejected", "unknown field", "What you typed is in /tmp/kept-2.yaml")
	press(t, a, "e")
	f.err = errors.New("no answer")
	press(t, a, "a", "y")
	shows("not stored", "no answer", "What you typed is in /tmp/kept-3.yaml")
	if want := []string{"outdated: 1\n", "wrong\n", "good: 1\n"}; !slices.Equal(kept, want) {
		t.Errorf("kept %q, not %q", kept, want)
	}
}

func TestEditFrames(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"edit": "kind: VirtualMachine\n", "edit-rejected": "wrong\n"} {
		for _, size := range sizes {
			a := New(world(&fake{}))
			var given []string
			editorOf(a, &given, text)
			drive(t, a, size)
			press(t, a, "down", "e")
			golden(t, sized(name, size), a)
		}
	}
}

func TestWhatTheEditorLeaves(t *testing.T) {
	t.Parallel()
	var said error
	(&App{}).edit(page.EditText{Done: func(_ string, err error) tea.Msg { said = err; return nil }})
	if said == nil || errors.Is(said, os.ErrNotExist) {
		t.Errorf("without an editor: %v", said)
	}
}
