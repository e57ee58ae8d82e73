// Package expectcmd is `virtctl expect`: a script at a guest's serial console.
package expectcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/console"
	"github.com/virtkit/virtkit/pkg/client/action/expect"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl expect`.
type Options struct {
	Factory *cli.Factory
	Name    string
	// File is the script's, - for standard input.
	File string

	Output  *cli.Output
	Connect cli.Timeout
	Timeout cli.Timeout
	Join    bool
	Tail    uint32
	Quiet   bool
	Vars    []string

	variables map[string]string
}

// NewCmdExpect makes the command.
func NewCmdExpect(f *cli.Factory) *cobra.Command {
	o := &Options{
		Factory: f, Output: cli.NewOutput(),
		Connect: cli.Timeout{Duration: 5 * time.Minute, Unit: time.Minute},
		Timeout: cli.Timeout{Duration: expect.DefaultTimeout, Unit: time.Second},
	}
	cmd := &cobra.Command{
		Use:   "expect NAME FILE|-",
		Short: "Run a script at the serial console of a virtual machine",
		Long: `Run a script at the serial console of a virtual machine: type, wait for what the guest answers, and so on.

A script has one statement a line; lines that begin with # are comments:

  timeout 30s              how long each wait that follows may take; --timeout until then
  send "text\r"            type text; C's escapes, \r is Enter; $name, ${name} and $1 are variables
  send-secret "$password"  the same, but kept out of the transcript
  expect "text" [10s]      wait for text, for this long
  expect /regexp/ [10s]    wait for a match; groups become $1, $2 and, with (?P<name>…), $name
  expect eof               wait for the end of the guest
  on /regexp/ do exit 3    whenever that is seen in a wait: send, send-secret, print, set or exit
  set name "text"          give a variable a value
  print "text"             write a line
  exit N                   end with code N

What the guest writes goes to standard output; with --quiet only what the script prints does, and with -o the
transcript. The exit code is the script's: 0 at its end; 8 when a wait takes too long; 1 when the console ends
before the script does.`,
		Example: cli.Examples(f.Program, `
			virtctl expect demo login.exp
			PASSWORD=secret virtctl expect demo login.exp --var user=root --var PASSWORD -o json
			printf 'send "\\r"\nexpect "login: "\n' | virtctl expect demo -`),
		Args: cli.Args(2, 2, "the name of one VM, and a script or -"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return completioncmd.VMIs(f, 1)(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.File = args[0], args[1]
			if err := o.complete(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.Var(&o.Timeout, "timeout",
		"How long a wait may take that the script says nothing about; a bare number is seconds")
	flags.Var(&o.Connect, "connect-timeout",
		"How long to wait for the guest to run; a bare number is minutes, 0 is no limit")
	flags.BoolVar(&o.Join, "join", false, "Attach beside other clients instead of taking over from them")
	flags.Var((*cli.Count)(&o.Tail), "tail", "Begin with the last `BYTES` that the guest has written")
	flags.BoolVarP(&o.Quiet, "quiet", "q", false, "Write only what the script prints")
	flags.StringArrayVar(&o.Vars, "var", nil,
		"A variable, `NAME=VALUE`; NAME alone takes the value from the environment, where a secret belongs")
	o.Output.AddFlags(cmd)
	return cmd
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (o *Options) complete() error {
	o.variables = map[string]string{}
	for _, v := range o.Vars {
		name, value, given := strings.Cut(v, "=")
		if !variable.MatchString(name) {
			return cli.UsageErrorf("--var: %q is not a variable's name: letters, digits and _, and a letter "+
				"first", name)
		}
		if !given {
			if value = o.Factory.Getenv(name); value == "" {
				return cli.UsageErrorf("--var %s: there is no such variable in the environment, or it is empty", name)
			}
		}
		o.variables[name] = value
	}
	return o.Output.Validate()
}

// Run runs the script.
func Run(ctx context.Context, o *Options) error {
	script, err := o.script()
	if err != nil {
		return err
	}
	target, err := o.Factory.Target(o.Name)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGQUIT)
	defer stop()
	conn, err := o.connect(ctx, target)
	if err != nil {
		return err
	}
	options := expect.Options{Variables: o.variables, Timeout: o.Timeout.Duration, Now: o.Factory.Now}
	switch {
	case o.Output.Given():
	case o.Quiet:
		options.Printed = o.Factory.IO.RawOut()
	default:
		options.Output = o.Factory.IO.RawOut()
	}
	transcript, err := script.Run(ctx, conn, options)
	if o.Output.Given() {
		transcript.Name, transcript.Namespace = target.Name, target.Namespace
		if perr := o.Output.Print(transcript, o.Factory.IO.Out); perr != nil {
			return perr
		}
	}
	var exit *expect.ExitError
	switch {
	case errors.As(err, &exit):
		return &cli.ExitError{Code: exit.Code}
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", o.file(), err)
	}
	return nil
}

func (o *Options) file() string {
	if o.File == "-" {
		return "standard input"
	}
	return o.File
}

func (o *Options) script() (*expect.Script, error) {
	in, err := cli.OpenFile(o.Factory.IO.In, "", o.File)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	script, err := expect.Parse(o.file(), in)
	if err == nil {
		err = script.Check(o.variables)
	}
	if bad := (*expect.ParseError)(nil); errors.As(err, &bad) {
		return nil, cli.UsageErrorf("%s", err)
	}
	return script, err
}

// connect opens the console, waiting for a guest that does not run yet.
func (o *Options) connect(ctx context.Context, t cli.Target) (io.ReadWriteCloser, error) {
	c, err := o.Factory.Client()
	if err != nil {
		return nil, err
	}
	if o.Connect.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Connect.Duration)
		defer cancel()
	}
	remote := &console.Remote{
		API: c, Namespace: t.Namespace, Name: t.Name, Join: o.Join, Tail: o.Tail,
		Blocked: func(why string) { fmt.Fprintln(o.Factory.IO.ErrOut, o.Factory.DoesNotStart(t, why)) },
	}
	conn, err := remote.Connect(ctx, false, func() {})
	if errors.Is(err, console.ErrStopped) {
		return nil, fmt.Errorf("%w; %s", err, o.Factory.StartIt(t))
	}
	return conn, err
}
