package dashboardcmd

import (
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// What a terminal cannot draw is not written to it.
func TestTerminalThatDraws(t *testing.T) {
	for _, c := range []struct {
		term, want string
		tty        bool
	}{
		{"xterm", "", true},
		{"dumb", `TERM is "dumb"`, true},
		{"xterm", "needs a terminal", false},
	} {
		o := &Options{Theme: "auto", Output: cli.NewOutput(formatText), Factory: &cli.Factory{
			IO:     &cli.IOStreams{InIsTTY: c.tty, OutIsTTY: c.tty},
			Getenv: func(string) string { return c.term },
		}}
		err := o.validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
