package script

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A guest's screen on a pseudo-terminal: it is drawn, follows the window's size, and leaves the terminal as it was.
func TestTerminalScreen(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(t *testing.T, p *pty)
		code int
	}{
		{"escape", func(t *testing.T, p *pty) { p.typeKeys(t, "\x1d") }, 0},
		{"escape with kitty's keyboard", func(t *testing.T, p *pty) { p.typeKeys(t, "\x1b[93;5u") }, 0},
		{"SIGTERM", func(t *testing.T, p *pty) { p.signal(t, syscall.SIGTERM) }, 130},
		{"SIGHUP", func(t *testing.T, p *pty) { p.signal(t, syscall.SIGHUP) }, 130},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := onTerminal(t, terminalCluster(t), "vnc", "demo", "--terminal")
			p.window(t, 80, 25)
			p.expect(t, "\x1b[c")
			if p.modes(t) == p.before {
				t.Error("the terminal is not raw")
			}
			p.typeKeys(t, "\x1b[?1u\x1b[?62;c")
			p.expect(t, "▀")
			p.expect(t, "\x1b[25;1H\x1b[0;7m Ctrl-] leaves")
			p.window(t, 100, 40)
			p.expect(t, "\x1b[40;1H\x1b[0;7m Ctrl-] leaves")
			test.end(t, p)
			p.ends(t, test.code)
			for _, undone := range []string{"\x1b[<u", "\x1b[?1003l", "\x1b[?2004l", "\x1b[?25h", "\x1b[?1049l"} {
				p.expect(t, undone)
			}
		})
	}
}

// A terminal that does not answer is drawn on with half blocks.
func TestTerminalScreenDumb(t *testing.T) {
	p := onTerminal(t, terminalCluster(t), "vnc", "demo", "--terminal")
	p.window(t, 80, 25)
	p.expect(t, "▀")
	p.typeKeys(t, "\x1d")
	p.ends(t, 0)
}

func (p *pty) window(t *testing.T, columns, rows uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
}
