package app

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

func TestHandover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		fails  bool
		asks   bool
	}{
		"ends":           {"exit 0", false, false},
		"ends by itself": {"exit 79", false, true},
		"is interrupted": {"exit 130", false, false},
		"fails":          {"echo why; exit 3", true, true},
		"is killed":      {"kill -TERM $$", true, false},
	} {
		in, out := strings.NewReader("no\nleft"), &bytes.Buffer{}
		program := &handed{Cmd: exec.Command("sh", "-c", c.script), leave: "Ctrl-C leaves."}
		program.SetStdin(in)
		program.SetStdout(out)
		program.SetStderr(out)
		if err := program.Run(); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.HasPrefix(out.String(), "Ctrl-C leaves.\n") {
			t.Errorf("%s: nothing says how to leave: %q", name, out)
		}
		if asks := strings.Contains(out.String(), "Enter goes back"); asks != c.asks {
			t.Errorf("%s: %q", name, out)
		}
	}
}
