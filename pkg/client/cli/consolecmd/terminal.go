package consolecmd

import (
	"fmt"
	"strings"
	"sync"

	"github.com/virtkit/virtkit/pkg/client/action/console"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/terminal"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

// screen is the user's terminal and the place for notices. All of it does nothing where there is no terminal, or where
// the keys do not go to the guest.
type screen struct {
	*terminal.Terminal
	io   *cli.IOStreams
	name string
	// interactive is whether the terminal's keys go to the guest.
	interactive bool
}

func newScreen(streams *cli.IOStreams, name string, keys bool) *screen {
	t := terminal.New(streams)
	return &screen{Terminal: t, io: streams, name: name, interactive: keys && t.Is()}
}

// say writes a notice to a user at a terminal. A raw one needs the carriage return.
func (s *screen) say(format string, args ...any) {
	if !s.interactive || !s.io.ErrIsTTY {
		return
	}
	text := printable.Text(fmt.Sprintf(format, args...))
	if s.IsRaw() {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	fmt.Fprint(s.io.RawErr(), text)
}

// warn prints a message that scripts need too: at a terminal as say does, else to standard error.
func (s *screen) warn(format string, args ...any) {
	if s.interactive && s.io.ErrIsTTY {
		s.say(format, args...)
		return
	}
	fmt.Fprintf(s.io.ErrOut, format, args...)
}

// waiting returns what says, once, that the guest is waited for.
func (s *screen) waiting() func() {
	var once sync.Once
	return func() {
		once.Do(func() { s.say("Waiting for the console of %s. Press Ctrl-C to leave.\n", s.name) })
	}
}

// notify follows the session. The words of the first notice are KubeVirt's, which scripts wait for.
func (s *screen) notify(e console.Event, err error) {
	switch {
	case e == console.Connected:
		if s.interactive {
			if err := s.Raw(); err != nil {
				s.say("%s\n", err)
			}
		}
		s.say("Successfully connected to %s console. Press Ctrl+] or Ctrl+5 to exit console.\n", s.name)
	case err != nil:
		s.say("\nThe console of %s was lost: %s. Connecting again; press Ctrl+] to leave.\n", s.name, err)
	default:
		s.say("\nThe console of %s has ended. Connecting again; press Ctrl+] to leave.\n", s.name)
	}
}
