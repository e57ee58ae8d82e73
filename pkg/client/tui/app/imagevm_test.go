package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestFormSaysWhoLogsIn: before a VM is made of an image it is said whose SSH key lets in, or that nobody is let in.
func TestFormSaysWhoLogsIn(t *testing.T) {
	t.Parallel()
	const has = "SSH key /home/me/.ssh/id_ed25519.pub lets you log in with account debian."
	const given = "The given SSH key lets you log in with account debian."
	const hasNone = "Nobody can log in to the guest: there is no SSH key in /home/me/.ssh."
	for name, c := range map[string]struct {
		keyless bool
		keys    []string
		want    string
	}{
		"with a key":    {false, nil, has},
		"without":       {true, nil, hasNone},
		"with a given":  {true, []string{"'ssh-ed25519 AAAA"}, given},
		"with both":     {false, []string{"'ssh-ed25519 AAAA"}, given},
		"not any more":  {true, []string{"'x", "backspace"}, hasNone},
		"key for later": {false, []string{"'x", "backspace"}, has},
	} {
		f := &fake{keyless: c.keyless}
		a := New(imageWorld(f))
		drive(t, a, sizes[2])
		keys := []string{"9", "/", "'Ready", "enter", "+", "'new", "up"} // the last field is the key
		press(t, a, append(keys, c.keys...)...)
		if s := strings.Join(strings.Fields(ansi.Strip(a.screen())), " "); !strings.Contains(s, c.want) {
			t.Errorf("%s: the form does not say %q:\n%s", name, c.want, ansi.Strip(a.screen()))
		}
		press(t, a, "ctrl+s")
		if a.ask == nil || !strings.HasSuffix(a.ask.Question, c.want) {
			t.Errorf("%s: the question %+v does not say %q", name, a.ask, c.want)
		}
		a.Close()
	}
}
