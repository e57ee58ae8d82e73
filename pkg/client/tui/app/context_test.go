package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestContextThatIsNotThere stays, and says where those are that are there.
func TestContextThatIsNotThere(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	var asked []string
	a.Contexts = func(context.Context) []string { return []string{"kind-of-the-lab", "prod"} }
	a.Switch = func(s page.Scope) (*page.World, error) {
		asked = append(asked, s.Context)
		return nil, errors.New("no")
	}
	drive(t, a, sizes[0])
	press(t, a, ":", "'ctx ")
	_, typed, _ := strings.Cut(ansi.Strip(a.screen()), ":ctx ")
	if typed, _, _ = strings.Cut(typed, "\n"); strings.TrimSpace(typed) != "kind-of-the-lab" {
		t.Errorf("it suggests %q", typed)
	}
	press(t, a, "esc", ":", "'ctx nope", "enter")
	if len(asked) > 0 || !strings.Contains(a.notice, `There is no context "nope"; :ctx and a space`) {
		t.Errorf("switched to %q, says %q", asked, a.notice)
	}
	press(t, a, ":", "'ctx prod", "enter")
	if len(asked) != 1 || len(a.trouble) != 1 {
		t.Errorf("switched to %q, says %q", asked, a.trouble)
	}
}

// TestContextHasItsNamespace: of another context its own namespace is shown, as kubectl does, unless all are.
func TestContextHasItsNamespace(t *testing.T) {
	t.Parallel()
	for shown, want := range map[string]string{"prod": "of-far", "": ""} {
		w := world(&fake{})
		w.Namespace = shown
		a := New(w)
		a.NamespaceOf = func(name string) string { return "of-" + name }
		a.Contexts = func(context.Context) []string { return []string{"far"} }
		var asked []page.Scope
		a.Switch = func(s page.Scope) (*page.World, error) {
			asked = append(asked, s)
			return w, nil
		}
		drive(t, a, sizes[0])
		press(t, a, ":", "'ctx far", "enter")
		if want := (page.Scope{Context: "far", Namespace: want}); !slices.Equal(asked, []page.Scope{want}) {
			t.Errorf("of %q: switched to %v, not %v", shown, asked, want)
		}
	}
}
