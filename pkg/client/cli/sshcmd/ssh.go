package sshcmd

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	gossh "golang.org/x/crypto/ssh"

	"github.com/virtkit/virtkit/pkg/client/action/ssh"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/terminal"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

// Options of `virtctl ssh`.
type Options struct {
	login
	Name     string
	Command  string
	Terminal bool
	// Asked is a terminal if we have one (-t), Terminal one anyway (-tt, --tty).
	Asked     bool
	NoCommand bool
	Forwards  []ssh.Forward

	here, there, dynamic []string
}

// NewCmdSSH makes the command.
func NewCmdSSH(f *cli.Factory) *cobra.Command {
	o := &Options{login: login{Factory: f}}
	cmd := &cobra.Command{
		Use:   "ssh [USER@]NAME [-- COMMAND...]",
		Short: "Log in to a virtual machine with ssh, or run a command in it",
		Long: `Log in to a virtual machine with ssh, or run a command in it. The connection goes through the API server, so the
guest needs no address that can be reached from here.

NAME may be vm/NAME, vmi/NAME and vm/NAME/NAMESPACE. Keys come from -i, from the agent and from ~/.ssh; a terminal is
asked for passwords and passphrases. The guest's host key is kept in ~/.ssh/kubevirt_known_hosts under the name
vm.NAME.NAMESPACE. The exit code is the command's own; 128 and the number when a signal ended it.

At a terminal, ~. at the beginning of a line ends the session.

With --local-ssh, or any --local-ssh-opts (-t "-o …"), this machine's own ssh does the work with this program as its
ProxyCommand, which carries the flags that choose the cluster. Without an option after it, -t is ssh's: a terminal
for the command.`,
		Example: cli.Examples(f.Program, `
			virtctl ssh root@demo
			virtctl ssh root@vm/demo/shop -i key --strict-host-key-checking=accept-new -c 'uname -a'
			virtctl ssh -t root@demo -- top
			tar c src | virtctl ssh root@demo -- tar x
			virtctl ssh root@demo -N -L 8080:localhost:80
			virtctl ssh root@demo --local-ssh -t "-o StrictHostKeyChecking=no"`),
		ValidArgsFunction: completeMachine(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	o.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.Command, "command", "c", "", "The `COMMAND` to run, as after --")
	flags.VarP(&localOpts{o: o, cmd: cmd}, "local-ssh-opts", "t",
		"An `OPTION` for this machine's ssh, such as \"-o ForwardAgent=yes\" (can be repeated)")
	flags.BoolVar(&o.Terminal, "tty", false, "Give the command a terminal, also when standard input is none")
	flags.BoolVarP(&o.NoCommand, "no-command", "N", false, "Run no command: forward ports only")
	flags.StringArrayVarP(&o.here, "local-forward", "L", nil,
		"Listen here and connect from the guest: `[BIND:]PORT:HOST:HOSTPORT`")
	flags.StringArrayVarP(&o.there, "remote-forward", "R", nil,
		"Listen in the guest and connect from here: `[BIND:]PORT:HOST:HOSTPORT`")
	flags.StringArrayVarP(&o.dynamic, "dynamic-forward", "D", nil,
		"Listen here for SOCKS5 and connect from the guest: `[BIND:]PORT`")
	return cmd
}

// completeMachine completes NAME, and USER@NAME.
func completeMachine(f *cli.Factory) cobra.CompletionFunc {
	names := completioncmd.VMIs(f, 1)
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		user, name := "", word
		if at := strings.LastIndexByte(word, '@'); at >= 0 {
			user, name = word[:at+1], word[at+1:]
		}
		found, directive := names(cmd, args, name)
		for i := range found {
			found[i] = user + found[i]
		}
		return found, directive
	}
}

func (o *Options) complete(cmd *cobra.Command, args []string) error {
	opts := cmd.Flags().Lookup("local-ssh-opts").Value.(*localOpts)
	for i, stray := range opts.strays {
		args = slices.Insert(args, min(stray.at+i, len(args)), stray.word)
	}
	if len(args) == 0 {
		return cli.UsageErrorf("%s needs the name of one VM", cmd.CommandPath())
	}
	o.Name = args[0]
	switch {
	case len(args) > 1 && o.Command != "":
		return cli.UsageErrorf("the command is given twice: by --command and after the name")
	case len(args) > 1:
		o.Command = strings.Join(args[1:], " ")
	}
	if o.NoCommand && o.Command != "" {
		return cli.UsageErrorf("--no-command contradicts the command %q", o.Command)
	}
	for _, list := range []struct {
		flag          string
		specs         []string
		remote, socks bool
	}{{"-L", o.here, false, false}, {"-R", o.there, true, false}, {"-D", o.dynamic, false, true}} {
		for _, spec := range list.specs {
			f, err := ssh.ParseForward(spec, list.remote, list.socks)
			if err != nil {
				return cli.UsageErrorf("%s: %s", list.flag, err)
			}
			o.Forwards = append(o.Forwards, f)
		}
	}
	return o.login.complete(cmd)
}

// Run logs in and returns when the command has ended.
func Run(ctx context.Context, o *Options) error {
	m, err := o.parse(o.Name)
	if err != nil {
		return err
	}
	if o.LocalSSH {
		program, err := o.program()
		if err != nil {
			return err
		}
		return o.runLocal(ctx, "ssh", o.sshArgs(program, m))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGQUIT)
	defer stop()
	client, err := o.connect(ctx, m)
	if err != nil {
		return err
	}
	defer client.Close()
	forwards := &ssh.Forwarder{Client: client, Failed: o.warn}
	defer forwards.Close()
	for _, spec := range o.Forwards {
		addr, err := forwards.Start(ctx, spec)
		if err != nil {
			return err
		}
		if strings.HasSuffix(spec.Listen, ":0") {
			fmt.Fprintf(o.Factory.IO.ErrOut, "Allocated port %s for %s\n", addr, spec.To)
		}
	}
	if o.NoCommand {
		return o.idle(ctx, client)
	}
	return o.session(ctx, client)
}

// warn prints that a forward failed, perhaps at a raw terminal, which needs the carriage return.
func (o *Options) warn(err error) {
	if o.Factory.IO.ErrIsTTY {
		fmt.Fprintf(o.Factory.IO.RawErr(), "Warning: %s\r\n", printable.Line(err.Error()))
	}
}

// idle keeps the connection until either side ends it.
func (o *Options) idle(ctx context.Context, client *gossh.Client) error {
	defer context.AfterFunc(ctx, func() { client.Close() })()
	err := client.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(ssh.ErrLost, err)
}

func (o *Options) session(ctx context.Context, client *gossh.Client) error {
	streams := o.Factory.IO
	term := terminal.New(streams)
	s := &ssh.Session{
		Command: o.Command, Out: streams.RawOut(), Err: streams.RawErr(), Resizes: term.Resizes,
		Terminal: o.Terminal || term.Is() && (o.Command == "" || o.Asked),
		Term:     "xterm", Width: 80, Height: 24,
	}
	if t := o.Factory.Getenv("TERM"); t != "" {
		s.Term = t
	}
	if width, height, ok := term.Size(); ok {
		s.Width, s.Height = width, height
	}
	s.In, s.StopInput = terminal.Cancellable(streams.In)
	if s.Terminal && term.Is() {
		s.Escape = true
		defer term.Restore()
		var failed error
		s.Started = func() { failed = term.Raw() }
		err := s.Run(ctx, client)
		term.Restore()
		return ending(errors.Join(err, failed))
	}
	return ending(s.Run(ctx, client))
}

// ending returns an error with the exit code of the command in the guest.
func ending(err error) error {
	var status *ssh.StatusError
	if errors.As(err, &status) {
		return &cli.ExitError{Code: status.Code}
	}
	return err
}

// sshArgs returns the arguments of this machine's ssh.
func (o *Options) sshArgs(program string, m machine) []string {
	args := o.localArgs(program, m)
	for _, list := range []struct {
		flag  string
		specs []string
	}{{"-L", o.here}, {"-R", o.there}, {"-D", o.dynamic}} {
		for _, spec := range list.specs {
			args = append(args, list.flag, spec)
		}
	}
	switch {
	case o.Terminal:
		args = append(args, "-tt")
	case o.Asked:
		args = append(args, "-t")
	}
	if o.NoCommand {
		args = append(args, "-N")
	}
	args = append(args, destination(m))
	if o.Command != "" {
		args = append(args, o.Command)
	}
	return args
}
