// Package execcmd is `virtctl exec`: a program in a guest, through the guest agent.
package execcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/guest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/stream"
)

// exitNoProgram is a shell's exit code for a program that does not exist.
const exitNoProgram = 127

// Options of `virtctl exec`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Name    string
	Command []string

	Stdin   bool
	Timeout cli.Timeout
}

// NewCmdExec makes the command.
func NewCmdExec(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(), Timeout: cli.Timeout{Unit: time.Second}}
	cmd := &cobra.Command{
		Use:   "exec NAME [-i] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a virtual machine through its guest agent",
		Long: `Run a command in a virtual machine through its guest agent. Neither network nor login is needed.

What the command writes to stdout and stderr arrives there, when it has ended; its exit code is virtctl's, with 128
and the number for a signal, and 127 when the guest has no such program. No shell is between: for one, run
"sh -c '...'". With -i standard input is sent, to its end, before the command starts.

The guest agent keeps everything in memory: 2 MiB of input and about 3 MiB of output are the most. When virtctl is
interrupted or --timeout is over, the command is ended in the guest (not in Windows, where it goes on).`,
		Example: cli.Examples(f.Program, `
			virtctl exec demo -- uname -a
			virtctl exec demo -i -- sh -c 'cat > /etc/motd' < motd
			virtctl exec demo --timeout 30s -o json -- systemctl is-active sshd`),
		ValidArgsFunction: completioncmd.VMIs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.Stdin, "stdin", "i", false, "Send standard input to the command")
	cmd.Flags().Var(&o.Timeout, "timeout", "End the command after this time; 0 is no limit")
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) parse(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return cli.UsageErrorf("%s needs the name of a VM, then -- and a command", cmd.CommandPath())
	case dash < 0 && len(args) > 1, dash > 1:
		return cli.UsageErrorf("put -- before the command: %s %s -- %s", cmd.CommandPath(), args[0], args[1])
	case dash < 0 || len(args) == dash:
		return cli.UsageErrorf("%s needs a command after --", cmd.CommandPath())
	}
	o.Name, o.Command = args[0], args[1:]
	return o.Output.Validate()
}

// Run runs the command and ends with its exit code.
func Run(ctx context.Context, o *Options) error {
	c, target, err := o.Factory.Machine(o.Name)
	if err != nil {
		return err
	}
	if o.Timeout.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout.Duration,
			fmt.Errorf("%w: the command has not ended in %s", action.ErrTimeout, o.Timeout.Duration))
		defer cancel()
	}
	var stdout, stderr bytes.Buffer
	p := guest.Program{Command: o.Command, Stdout: o.Factory.IO.RawOut(), Stderr: o.Factory.IO.RawErr()}
	if o.Output.Given() {
		p.Stdout, p.Stderr = &stdout, &stderr
	}
	if o.Stdin {
		p.Stdin = o.Factory.IO.In
	}
	began := o.Factory.Now()
	result, err := guest.Run(ctx, func(ctx context.Context) (*stream.Conn, error) {
		return c.Exec(ctx, target.Namespace, target.Name)
	}, p)
	switch {
	case errors.Is(err, guest.ErrNoProgram):
		return &cli.ExitError{Code: exitNoProgram, Err: err}
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return o.Factory.NotRunning(ctx, c, target, err)
	}
	if o.Output.Given() {
		report := guest.NewExecResult(target.Namespace, target.Name, o.Command, result, stdout.Bytes(), stderr.Bytes(),
			o.Factory.Now().Sub(began))
		if err := o.Output.Print(report, o.Factory.IO.Out); err != nil {
			return err
		}
	} else if result.Truncated {
		fmt.Fprintln(o.Factory.IO.ErrOut, "warning: the guest agent has dropped some of the output")
	}
	if code := guest.ExitCode(result); code != 0 {
		return &cli.ExitError{Code: code}
	}
	return nil
}
