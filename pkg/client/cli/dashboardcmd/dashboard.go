// Package dashboardcmd is `virtctl dashboard`: it connects pkg/client/tui to a cluster and a terminal.
package dashboardcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/editor"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/tui/app"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// Options of `virtctl dashboard`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output

	AllNamespaces bool
	ReadOnly      bool
	Once          bool
	Plain         bool
	ASCII         bool
	Theme         string

	// connection are the flags that choose the cluster, for programs that we start.
	connection []string
}

// NewCmdDashboard makes the command.
func NewCmdDashboard(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewNameless(formatText)}
	cmd := &cobra.Command{
		Use:     "dashboard",
		Aliases: []string{"ui"},
		Short:   "Watch and operate virtual machines in the terminal",
		Long: `Watch and operate virtual machines in the terminal.

The keys that do something are shown at the bottom, and all of them with ?. What is done is written to a log (L) as the
command that does the same. What the server does not let you do is dim.

--plain prints a line for each change instead of drawing, for screen readers and logs. --once says how things are and
ends: as text, or with -o as a report.

Colours follow the terminal. $XDG_CONFIG_HOME/virtkit/theme.yaml replaces some, each by a number of the terminal's
palette or "#rrggbb":
` + strings.Join(theme.Roles(), ", ") + ".",
		Example: cli.Examples(f.Program, `
			virtctl dashboard
			virtctl dashboard --namespace prod
			virtctl dashboard --all-namespaces --read-only
			virtctl dashboard --all-namespaces --once -o json | jq '.machines[] | select(.ready | not) | .name'
			virtctl dashboard --plain`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			o.connection = cli.ConnectionWords(cmd)
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "Show the machines of all namespaces")
	flags.BoolVar(&o.ReadOnly, "read-only", false, "Show everything and change nothing")
	flags.BoolVar(&o.Once, "once", false, "Say how things are, and end")
	flags.BoolVar(&o.Plain, "plain", false, "Print each change as a line")
	flags.BoolVar(&o.ASCII, "ascii", false, "Draw with ASCII alone")
	flags.StringVar(&o.Theme, "theme", "auto", "Colours for a `BACKGROUND`: auto, dark, light or none")
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "theme", "auto", "dark", "light", "none")
	return cmd
}

func (o *Options) validate() error {
	switch o.Theme {
	case "auto", "dark", "light", "none":
	default:
		return cli.UsageErrorf("--theme: %q is not one of auto, dark, light, none", o.Theme)
	}
	switch {
	case o.Once && o.Plain:
		return cli.UsageErrorf("--once ends and --plain goes on; give one of them")
	case o.Output.Format != "" && !o.Once:
		return cli.UsageErrorf("-o says how to print; give --once with it")
	case o.Once || o.Plain:
		return o.Output.Validate()
	}
	if streams := o.Factory.IO; !streams.InIsTTY || !streams.OutIsTTY {
		return cli.UsageErrorf("a dashboard needs a terminal; --once and --plain do not")
	}
	if term := o.Factory.Getenv("TERM"); term == "dumb" || term == "" && runtime.GOOS != "windows" {
		return cli.UsageErrorf(
			"a dashboard needs a terminal that it can draw on, and TERM is %q; --once and --plain do not", term)
	}
	return nil
}

// formatText is --once's own.
const formatText = "text"

// Run shows the dashboard until the user leaves it.
func Run(ctx context.Context, o *Options) error {
	f := o.Factory
	interactive := !o.Once && !o.Plain
	if interactive {
		// An interrupt is a key, or it is for the program that has the terminal.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	defer cancel()
	s, err := newSession(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	world, err := s.open(page.Scope{Context: f.Connection().Context, Namespace: s.namespace})
	if err != nil {
		return err
	}
	switch {
	case o.Once:
		return s.once(ctx, world)
	case o.Plain:
		return s.plain(ctx, world)
	}
	model := app.New(world)
	if model.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	model.History = s.history()
	model.Namespaces, model.Contexts, model.Switch = s.namespaces, s.contexts, s.open
	model.NamespaceOf = s.namespaceOf
	model.Editor = editor.Command(f.Getenv)
	model.Command = commands(ctx)
	if shell() {
		model.Suspend = tea.Suspend
	}
	program := newProgram(ctx, model, f.IO.In, f.IO.RawOut())
	s.program.Store(program)
	var beside sync.WaitGroup
	beside.Go(s.guarded(func() { s.pump(ctx, program) }))
	beside.Go(func() { untilSignal(ctx, end) })
	settle := editor.RememberTerminal(f.IO.In) // a program that was ended may have left it raw
	_, err = program.Run()
	settle()
	asked := context.Cause(ctx) // to end, by a signal
	if name := model.Kept(); name != "" && asked != nil {
		fmt.Fprintf(f.IO.ErrOut, "note: your text is in %s\n", name)
	}
	model.Close()
	s.endTransfers()
	for _, line := range model.Unanswered() {
		fmt.Fprintf(f.IO.ErrOut, "warning: left before the cluster answered: %s\n", line)
	}
	cancel()
	beside.Wait()
	s.remember(model.History)
	if errors.Is(err, tea.ErrInterrupted) ||
		errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, tea.ErrProgramPanic) {
		return asked
	}
	return err
}

// newProgram makes the program, to which an interrupt is nothing: untilSignal says why.
func newProgram(ctx context.Context, model tea.Model, in io.Reader, out io.Writer) *tea.Program {
	return tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithFPS(fps),
		tea.WithoutSignalHandler())
}

// fps is how often at most the screen is drawn in a second: a key does not wait longer than half a frame of most
// screens.
const fps = 120

// frame is the shortest time between two drawings of what the cluster changes: half of what a change may take to the
// screen.
const frame = 50 * time.Millisecond

// pump notifies the program of changes, many at once.
func (s *session) pump(ctx context.Context, program *tea.Program) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changes:
		}
		program.Send(app.Changed{})
		if action.Sleep(ctx, frame) != nil {
			return
		}
	}
}

// theme returns how the pages look. Without a screen it has no colours, and does not read the user's.
func (o *Options) theme() (*theme.Theme, error) {
	if o.Once || o.Plain {
		return theme.New(theme.Options{NoColour: true}), nil
	}
	env := o.Factory.Getenv
	colours, err := themeFile(env)
	if err != nil {
		return nil, err
	}
	return theme.New(theme.Options{
		Colours:  colours,
		Light:    o.Theme == "light" || o.Theme == "auto" && lightBackground(env("COLORFGBG")),
		NoColour: o.Theme == "none" || !o.Factory.IO.ColourOut(),
		ASCII:    o.ASCII || ascii(env),
	}), nil
}
