package script

import (
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A user at a terminal, with ssh: questions, keys, sizes, and a terminal that is as it was however it ends.
func TestTerminalSSH(t *testing.T) {
	for _, test := range []struct {
		name string
		// args follow `ssh me@demo`; before is up to the shell's welcome, end ends a session.
		args   []string
		before func(t *testing.T, p *pty)
		end    func(t *testing.T, p *pty)
		code   int
	}{
		{"escape", []string{"-i", "key"}, yes, func(t *testing.T, p *pty) { p.typeKeys(t, "\r~.") }, 0},
		{"SIGTERM", []string{"-i", "key"}, yes, func(t *testing.T, p *pty) { p.signal(t, syscall.SIGTERM) }, 130},
		{"SIGHUP", []string{"-i", "key"}, yes, func(t *testing.T, p *pty) { p.signal(t, syscall.SIGHUP) }, 130},
		{"password", nil, func(t *testing.T, p *pty) {
			yes(t, p)
			for i, word := range []string{"wrong", "secreT\x7ft"} {
				p.expectTimes(t, i+1, "me@demo's password: ")
				p.typeKeys(t, word+"\r")
			}
		}, func(t *testing.T, p *pty) { p.typeKeys(t, "\r~.") }, 0},
		{"no to the host key", []string{"-i", "key"}, func(t *testing.T, p *pty) {
			p.expect(t, "Are you sure you want to continue connecting (yes/no/[fingerprint])? ")
			p.typeKeys(t, "no\r")
			p.expect(t, "error: host key verification failed")
		}, nil, 1},
		{"Ctrl-C at a question", []string{"-i", "key"}, func(t *testing.T, p *pty) {
			p.expect(t, "Are you sure you want to continue connecting (yes/no/[fingerprint])? ")
			p.typeKeys(t, "\x03")
		}, nil, 130},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := terminalCluster(t)
			dir := t.TempDir()
			if err := c.addSSH(dir); err != nil {
				t.Fatal(err)
			}
			c.sshd.Password = "secret"
			args := []string{"ssh", "me@demo", "--known-hosts", filepath.Join(dir, "known")}
			for _, arg := range test.args {
				if arg == "key" {
					arg = filepath.Join(dir, "key")
				}
				args = append(args, arg)
			}
			if test.args == nil {
				args = append(args, "-i", filepath.Join(dir, "other"))
				if err := newKeyFile(filepath.Join(dir, "other")); err != nil {
					t.Fatal(err)
				}
			}
			p := onTerminal(t, c, args...)
			test.before(t, p)
			if test.end != nil {
				p.expect(t, "welcome")
				p.typeKeys(t, "a\x03b\r") // Ctrl-C is the guest's
				p.expect(t, "a\x03b")
				if p.modes(t) == p.before {
					t.Error("the terminal is not raw while connected")
				}
				test.end(t, p)
			}
			p.ends(t, test.code)
		})
	}
}

// yes trusts the host key.
func yes(t *testing.T, p *pty) {
	p.expect(t, "Are you sure you want to continue connecting (yes/no/[fingerprint])? ")
	p.typeKeys(t, "yes\r")
}

// The guest learns the size of the terminal, and each new one.
func TestTerminalSSHSize(t *testing.T) {
	c := terminalCluster(t)
	dir := t.TempDir()
	if err := c.addSSH(dir); err != nil {
		t.Fatal(err)
	}
	p := onTerminal(t, c, "ssh", "me@demo", "--known-hosts=", "-i", filepath.Join(dir, "key"), "--tty", "--", "size",
		"twice")
	p.expect(t, " 80x24")
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	p.expect(t, "120x40")
	p.ends(t, 0)
}
