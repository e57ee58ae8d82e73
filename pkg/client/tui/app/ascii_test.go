package app

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// TestASCII draws every page, with its keys, its help and what is asked on it, on a terminal that has ASCII alone.
func TestASCII(t *testing.T) {
	t.Parallel()
	look := func(name string, a *App) string {
		t.Helper()
		s := a.screen()
		if i := strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }); i >= 0 {
			t.Errorf("%s: %.20q is not ASCII\n%s", name, s[i:], s)
		}
		frame(t, name, a)
		return s
	}
	var seen strings.Builder
	for name, makePage := range everyPage {
		for _, keys := range [][]string{
			{},
			{"/", "'web"},
			{"esc", "?"},
			{"esc", ":", "'v"},
			{"X"},
			{"ctrl+d"},
			{"="},
			{"+"},
			{"Y"},
		} {
			f := &fake{doctor: &doctor.Report{}}
			w := world(f)
			w.Theme = theme.New(theme.Options{ASCII: true})
			a := New(w)
			a.editing = func(e page.EditText) tea.Cmd { return page.Send(e.Done("kind: VirtualMachine\n", nil)) }
			run(t, a, a.home(makePage), 0)
			drive(t, a, sizes[1], Changed{})
			seen.WriteString(look(name, a))
			if name == "split" { // each key is the guest's
				a.Close()
				break
			}
			press(t, a, keys...)
			seen.WriteString(look(fmt.Sprint(name, keys), a))
			a.Close()
		}
	}
	for _, want := range []string{"Enter U unplug", "Space", "[y/N]", "????-a-very-long-name"} {
		if !strings.Contains(seen.String(), want) {
			t.Errorf("nowhere is %q", want)
		}
	}
}
