// Package terminal is the user's terminal for commands that hand its keys to a guest: raw while they do, itself again
// whatever happens, its size and the changes of it. All of it does nothing where there is no terminal.
package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

// Terminal is safe for use by several goroutines.
type Terminal struct {
	streams *cli.IOStreams
	fd      int
	is      bool

	mu       sync.Mutex
	saved    *term.State
	reported size
}

type size struct{ width, height int }

// New returns the terminal behind standard input.
func New(streams *cli.IOStreams) *Terminal {
	t := &Terminal{streams: streams}
	if file, ok := streams.In.(*os.File); ok && streams.InIsTTY {
		t.is, t.fd = true, int(file.Fd())
	}
	return t
}

// Asking returns the terminal to ask the user at: the one behind standard input or else, where errors go to a terminal,
// the one that the program was started from. It is nil where there is nobody. close ends its use.
func Asking(streams *cli.IOStreams) (t *Terminal, done func()) {
	if t := New(streams); t.Is() {
		return t, func() {}
	}
	if !streams.ErrIsTTY {
		return nil, func() {}
	}
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, func() {}
	}
	return New(streams.Reading(file)), func() { file.Close() }
}

// Is reports whether standard input is a terminal.
func (t *Terminal) Is() bool { return t.is }

// Raw stops the terminal from interpreting keys. A broken pipe must then be an error rather than the end of the
// program, which would leave the terminal raw.
func (t *Terminal) Raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.is || t.saved != nil {
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

// Restore puts the terminal back; it may be called at any time, more than once.
func (t *Terminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return
	}
	if err := term.Restore(t.fd, t.saved); err != nil {
		fmt.Fprintf(t.streams.RawErr(), "error: put the terminal back: %s; run `reset`\r\n",
			printable.Line(err.Error()))
	}
	t.saved = nil
}

// IsRaw reports whether it is raw now.
func (t *Terminal) IsRaw() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.saved != nil
}

// Size returns the terminal's size in characters; ok is false where there is no terminal, or one that does not say.
func (t *Terminal) Size() (width, height int, ok bool) {
	if !t.is {
		return 0, 0, false
	}
	width, height, err := term.GetSize(t.fd)
	if err != nil || width <= 0 || height <= 0 {
		return width, height, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reported = size{width, height}
	return width, height, true
}

// resized gives the size if it is not what Size has reported last.
func (t *Terminal) resized(changed func(width, height int)) {
	t.mu.Lock()
	reported := t.reported
	t.mu.Unlock()
	if width, height, ok := t.Size(); ok && reported != (size{width, height}) {
		changed(width, height)
	}
}

// Cancellable makes a blocked read of a terminal or a pipe stoppable. Files and /dev/null, which cannot be polled,
// never block; then stop is nil.
func Cancellable(in io.Reader) (reader io.Reader, stop func()) {
	cancellable, err := cancelreader.NewReader(in)
	if err != nil {
		return in, nil
	}
	return &stoppable{cancellable}, func() { cancellable.Cancel() }
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
