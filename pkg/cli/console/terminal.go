package console

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"

	"github.com/virtkit/virtkit/pkg/action/console"
	"github.com/virtkit/virtkit/pkg/cli"
)

// terminal is the user's terminal: raw while connected, itself again whatever happens, and the place for notices. All
// of it does nothing where there is none.
type terminal struct {
	io   *cli.IOStreams
	name string
	// interactive is whether standard input is a terminal, whose keys go to the guest.
	interactive bool
	fd          int

	mu    sync.Mutex
	saved *term.State
}

func newTerminal(streams *cli.IOStreams, name string) *terminal {
	t := &terminal{io: streams, name: name}
	if file, ok := streams.In.(*os.File); ok && streams.InIsTTY {
		t.interactive, t.fd = true, int(file.Fd())
	}
	return t
}

// raw stops the terminal from interpreting keys. A broken pipe must then be an error rather than the end of the
// program, which would leave the terminal raw.
func (t *terminal) raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.interactive || t.saved != nil {
		return nil
	}
	signal.Ignore(syscall.SIGPIPE)
	saved, err := term.MakeRaw(t.fd)
	if err != nil {
		return fmt.Errorf("switch the terminal to raw mode: %w", err)
	}
	t.saved = saved
	return nil
}

// restore puts the terminal back; it may be called at any time, from any goroutine, more than once.
func (t *terminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return
	}
	if err := term.Restore(t.fd, t.saved); err != nil {
		fmt.Fprintf(t.io.ErrOut, "error: put the terminal back: %s; run `reset`\r\n", err)
	}
	t.saved = nil
}

func (t *terminal) isRaw() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.saved != nil
}

// say writes a notice to a user at a terminal. A raw one needs the carriage return.
func (t *terminal) say(format string, args ...any) {
	if !t.interactive || !t.io.ErrIsTTY {
		return
	}
	text := fmt.Sprintf(format, args...)
	if t.isRaw() {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	fmt.Fprint(t.io.ErrOut, text)
}

// waiting returns what says, once, that the guest is waited for.
func (t *terminal) waiting() func() {
	var once sync.Once
	return func() {
		once.Do(func() { t.say("Waiting for the console of %s. Press Ctrl-C to leave.\n", t.name) })
	}
}

// notify follows the session. The words of the first notice are KubeVirt's, which scripts wait for.
func (t *terminal) notify(e console.Event, err error) {
	switch {
	case e == console.Connected:
		if err := t.raw(); err != nil {
			t.say("%s\n", err)
		}
		t.say("Successfully connected to %s console. Press Ctrl+] or Ctrl+5 to exit console.\n", t.name)
	case err != nil:
		t.say("\nThe console of %s was lost: %s. Connecting again; press Ctrl+] to leave.\n", t.name, err)
	default:
		t.say("\nThe console of %s has ended. Connecting again; press Ctrl+] to leave.\n", t.name)
	}
}

// cancellable makes a blocked read of a terminal or a pipe stoppable. Files and /dev/null, which cannot be polled,
// never block.
func cancellable(in io.Reader) (io.Reader, func()) {
	reader, err := cancelreader.NewReader(in)
	if err != nil {
		return in, nil
	}
	return &stoppable{reader}, func() { reader.Cancel() }
}

// stoppable reads a cancelled reader as one at its end.
type stoppable struct{ cancelreader.CancelReader }

func (s *stoppable) Read(p []byte) (int, error) {
	n, err := s.CancelReader.Read(p)
	if errors.Is(err, cancelreader.ErrCanceled) {
		err = io.EOF
	}
	return n, err
}
