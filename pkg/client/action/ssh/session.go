package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/stream"
)

// Session is one command, or a shell, in a guest. Run uses it up.
type Session struct {
	// Command is what to run; "" is the user's shell.
	Command string
	// Terminal asks for a terminal in the guest; Term, Width and Height (in characters) describe it.
	Terminal      bool
	Term          string
	Width, Height int
	// In is what goes to the command; nil is nothing. StopInput makes a Read of it return, as in console.Session.
	In        io.Reader
	StopInput func()
	// Out and Err get what the command writes; with a terminal all of it comes to Out.
	Out, Err io.Writer
	// Escape lets the user end the session by typing ~. at the beginning of a line.
	Escape bool
	// Resizes calls changed whenever the user's terminal has a new size, until ctx ends; nil never does.
	Resizes func(ctx context.Context, changed func(width, height int))
	// Signals are passed on to the command; nil are none.
	Signals <-chan ssh.Signal
	// Started is called when the command runs, before any of what it writes is passed on; nil is fine.
	Started func()
}

// StatusError is a command's end with a code other than 0. A command that a signal ended has 128 and the signal's
// number, as in shells.
type StatusError struct {
	Code int
	// Signal is its name, such as KILL, or "".
	Signal string
}

func (s *StatusError) Error() string {
	if s.Signal != "" {
		return "the command was ended by signal " + s.Signal
	}
	return fmt.Sprintf("the command ended with code %d", s.Code)
}

// ErrLost is a connection that ended before the command did.
var ErrLost = action.ErrLost

// errEscaped is the user's wish to leave.
var errEscaped = errors.New("left")

// Run runs it and returns nil, *StatusError, ErrLost, or ctx's error.
func (s *Session) Run(ctx context.Context, client *ssh.Client) error {
	session, err := client.NewSession()
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	defer session.Close()
	started := make(chan struct{})
	session.Stdout, session.Stderr = &held{s.Out, started}, &held{s.Err, started}
	in, err := session.StdinPipe()
	if err != nil {
		return err
	}
	if s.Terminal {
		modes := ssh.TerminalModes{ssh.ECHO: 1}
		if err := session.RequestPty(s.Term, s.Height, s.Width, modes); err != nil {
			return fmt.Errorf("the server gives no terminal: %w", err)
		}
	}
	if s.Command == "" {
		err = session.Shell()
	} else {
		err = session.Start(s.Command)
	}
	if err == nil && s.Started != nil {
		s.Started()
	}
	close(started)
	if err != nil {
		return fmt.Errorf("the server does not run the command: %w", err)
	}
	return s.wait(ctx, client, session, in)
}

// held is a writer that waits until until is closed. A user who sees a prompt types, and the terminal must be ready for
// it.
type held struct {
	to    io.Writer
	until <-chan struct{}
}

func (h *held) Write(p []byte) (int, error) {
	<-h.until
	return h.to.Write(p)
}

// wait moves input, sizes and signals until the command ends.
func (s *Session) wait(ctx context.Context, client *ssh.Client, session *ssh.Session, in io.WriteCloser) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	escaped := make(chan struct{})
	if s.In == nil {
		s.endInput(in)
	} else {
		work.Go(func() {
			from := s.In
			if s.Escape {
				from = &escapes{from: s.In, atStart: true}
			}
			_, err := io.Copy(in, from)
			if errors.Is(err, errEscaped) {
				close(escaped)
				return
			}
			s.endInput(in)
		})
	}
	if s.Terminal && s.Resizes != nil {
		work.Go(func() {
			s.Resizes(inner, func(width, height int) {
				// A session that has ended takes no size, and needs none.
				_ = session.WindowChange(height, width)
			})
		})
	}
	ended := make(chan error, 1)
	work.Go(func() { ended <- session.Wait() })
	defer func() {
		cancel()
		session.Close()
		if s.StopInput != nil {
			s.StopInput()
		}
		work.Wait()
	}()
	for {
		select {
		case err := <-ended:
			return result(err)
		case <-escaped:
			client.Close()
			return nil
		case signal := <-s.Signals:
			// Servers that know no signals ignore them.
			_ = session.Signal(signal)
		case <-ctx.Done():
			if !s.Terminal {
				_ = session.Signal(ssh.SIGINT)
			}
			client.Close()
			return ctx.Err()
		}
	}
}

// endInput signals to the command that there is no more. Some servers take the end of a terminal's stream as that of
// the terminal itself and hang up; a user would type Ctrl-D. A command that has ended already hears neither.
func (s *Session) endInput(in io.WriteCloser) {
	if s.Terminal {
		_, _ = in.Write([]byte{endOfInput})
		return
	}
	in.Close()
}

// endOfInput is Ctrl-D.
const endOfInput = 0x04

func result(err error) error {
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		s := &StatusError{Code: exit.ExitStatus(), Signal: exit.Signal()}
		if n, known := numbers[ssh.Signal(s.Signal)]; known {
			s.Code = 128 + n
		}
		return s
	}
	var cut *ssh.ExitMissingError
	if errors.As(err, &cut) {
		return fmt.Errorf("%w before the command ended", ErrLost)
	}
	return fmt.Errorf("%w before the command ended: %s", ErrLost, stream.Cause(err))
}

var numbers = map[ssh.Signal]int{
	ssh.SIGHUP: 1, ssh.SIGINT: 2, ssh.SIGQUIT: 3, ssh.SIGILL: 4, ssh.SIGABRT: 6, ssh.SIGFPE: 8, ssh.SIGKILL: 9,
	ssh.SIGUSR1: 10, ssh.SIGSEGV: 11, ssh.SIGUSR2: 12, ssh.SIGPIPE: 13, ssh.SIGALRM: 14, ssh.SIGTERM: 15,
}

// escapes reads what a user types and looks for ~. at the beginning of a line; ~~ is one ~.
type escapes struct {
	from    io.Reader
	atStart bool
	tilde   bool
	typed   [512]byte
	ready   []byte
	err     error
}

func (e *escapes) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		n, err := e.from.Read(e.typed[:])
		e.ready, e.err = e.ready[:0], err
		for _, b := range e.typed[:n] {
			if e.key(b) {
				e.err = errEscaped
				break
			}
		}
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

// key takes one byte and reports whether it ends the session.
func (e *escapes) key(b byte) bool {
	switch {
	case e.tilde && b == '.':
		return true
	case e.tilde:
		e.tilde = false
		e.ready = append(e.ready, '~')
		if b == '~' {
			return false
		}
	case e.atStart && b == '~':
		e.tilde, e.atStart = true, false
		return false
	}
	e.ready = append(e.ready, b)
	e.atStart = b == '\r' || b == '\n'
	return false
}
