// Package consolecmd is `virtctl console`: a user, or a script, at a guest's serial console.
package consolecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/console"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/terminal"
	"github.com/virtkit/virtkit/pkg/stream"
)

// Options of `virtctl console`.
type Options struct {
	Factory *cli.Factory
	Name    string

	Timeout   cli.Timeout
	Idle      cli.Timeout
	Reconnect bool
	Join      bool
	Tail      uint32
	Log       string
	Record    string
	Send      []string

	texts [][]byte // of Send
}

// NewCmdConsole makes the command.
func NewCmdConsole(f *cli.Factory) *cobra.Command {
	o := &Options{
		Factory: f,
		Timeout: cli.Timeout{Duration: 5 * time.Minute, Unit: time.Minute},
		Idle:    cli.Timeout{Duration: 2 * time.Second, Unit: time.Second},
	}
	cmd := &cobra.Command{
		Use:   "console NAME",
		Short: "Connect to the serial console of a virtual machine",
		Long: `Connect to the serial console of a virtual machine.

At a terminal every key goes to the guest but Ctrl-], which leaves. The guest learns the size of the
terminal when it asks for it, as "resize" does: what it sends reaches the terminal unchanged.

Another client that connects takes over, and the session ends with a message; --join attaches beside others
instead. A guest that does not run yet is waited for, for --timeout; one that is stopped is an error.

In a script, standard input is sent to the guest as it is. When it ends and something was sent, the session
goes on until the guest has written nothing for --idle. When nothing was sent, as with </dev/null, it follows
the guest's output until the guest ends. A login throws away what was typed before it asks, so send a password
after its prompt.

--send types a text instead of reading standard input, with C's escapes: \r is the Enter key. Given several
times, each text but the first waits until the guest has been silent for --idle. For more than that there is
"expect". --record writes a recording that asciinema and others play; what is typed is not in it. It is begun when
the console is open, and replaces the FILE whole when the session ends.`,
		Example: cli.Examples(f.Program, `
			virtctl console demo
			virtctl console demo --reconnect --log demo.log
			(echo root; sleep 2; echo secret; sleep 2; echo uname -a) | virtctl console demo
			virtctl console demo --send 'root\r' --send 'secret\r' --send 'uname -a\r'
			virtctl console demo --record demo.cast
			virtctl console demo --join --tail 65536 </dev/null`),
		Args:              cli.Args(1, 1, "the name of one VM"),
		ValidArgsFunction: completioncmd.VMIs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.complete(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.Var(&o.Timeout, "timeout", "How long to wait for the guest to run; a bare number is minutes, 0 is no limit")
	flags.BoolVar(&o.Reconnect, "reconnect", false,
		"Connect again when the VM restarts or the connection is lost, each time within --timeout")
	flags.BoolVar(&o.Join, "join", false, "Attach beside other clients instead of taking over from them")
	flags.Var((*cli.Count)(&o.Tail), "tail", "Begin with the last `BYTES` that the guest has written")
	flags.StringVar(&o.Log, "log", "", "Append what the guest writes to this `FILE` too")
	flags.StringVar(&o.Record, "record", "", "Write a recording, an asciicast of version 2, to this `FILE`")
	flags.StringArrayVar(&o.Send, "send", nil, `Type this `+"`TEXT`"+
		` instead of reading standard input; with C's escapes, \r is Enter. May be given several times`)
	flags.Var(&o.Idle, "idle", "When input is no terminal and has ended: leave when the guest has been silent this "+
		"long; 0 is never")
	return cmd
}

// Run connects, and returns when the stream has ended or the user has left.
func Run(ctx context.Context, o *Options) (err error) {
	c, target, err := o.Factory.Machine(o.Name)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGQUIT)
	defer stop()
	term := newScreen(o.Factory.IO, target.Name, len(o.texts) == 0)
	defer term.Restore()
	out, err := o.outputs(ctx, term)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.done()) }()
	session := &console.Session{
		Dial:      opening(o.dialer(c, target, term), out.connected),
		Out:       out,
		Reconnect: o.Reconnect,
		Notify:    term.notify,
		Panicked:  term.Restore,
	}
	switch {
	case len(o.texts) > 0:
		sends := console.NewSends(o.Idle.Duration, o.texts...)
		session.In, session.StopInput, session.Out = sends, sends.Stop, sends.Watch(out)
	default:
		session.In, session.StopInput = terminal.Cancellable(o.Factory.IO.In)
	}
	if term.interactive {
		session.Escape = console.Escape
	} else {
		session.Idle = o.Idle.Duration
	}
	err = session.Run(ctx)
	term.Restore()
	return o.ending(term, target, session.Left, err)
}

// opening dials, and then calls opened, whose error is the dial's.
func opening(
	dial func(context.Context) (io.ReadWriteCloser, error), opened func() error,
) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		if err := opened(); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
}

// dialer opens the console and knows whether it has been open before.
func (o *Options) dialer(
	c *client.Client, t cli.Target, term *screen,
) func(context.Context) (io.ReadWriteCloser, error) {
	remote := &console.Remote{
		API: c, Namespace: t.Namespace, Name: t.Name, Join: o.Join, Tail: o.Tail,
		Blocked: func(why string) { term.warn("%s\n", o.Factory.DoesNotStart(t, why)) },
	}
	again := false
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		ctx, cancel := o.Timeout.Limit(ctx)
		defer cancel()
		conn, err := remote.Connect(ctx, again, term.waiting())
		again, remote.Tail = true, 0 // what came before has been shown
		return conn, err
	}
}

// ending prints how a session ended, or returns the error that it ended with.
func (o *Options) ending(term *screen, t cli.Target, left bool, err error) error {
	var closed *stream.CloseError
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil // whoever read our output has had enough
	case errors.Is(err, console.ErrStopped):
		return fmt.Errorf("%w; %s", err, o.Factory.StartIt(t))
	case errors.As(err, &closed):
		term.say("\n") // the cursor is where the guest left it
		hint := ""
		if !o.Reconnect && (closed.Code == stream.CodeGoingAway || closed.Code == stream.CodeAbnormal) {
			hint = "; --reconnect connects again by itself"
		}
		return fmt.Errorf("console of %s/%s: %w%s", t.Namespace, t.Name, err, hint)
	case err != nil:
		return err
	}
	term.say("\nThe session with %s has ended.\n", t.Name)
	if !left && term.interactive {
		return o.Factory.EndedByItself()
	}
	return nil
}
