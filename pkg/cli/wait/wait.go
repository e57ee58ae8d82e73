// Package wait is `virtctl wait`.
package wait

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/action/client"
	"github.com/virtkit/virtkit/pkg/action/wait"
	"github.com/virtkit/virtkit/pkg/cli"
	"github.com/virtkit/virtkit/pkg/cli/completion"
)

// Options of `virtctl wait`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Names   []string
	For     string
	Prompt  string
	Timeout cli.Timeout
}

// NewCmdWait makes the command; runF replaces Run in tests.
func NewCmdWait(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{
		Factory: f,
		Output:  cli.NewOutput(),
		Timeout: cli.Timeout{Duration: 5 * time.Minute, Unit: time.Second, Signed: true},
	}
	cmd := &cobra.Command{
		Use:   "wait NAME... --for=CONDITION",
		Short: "Wait until virtual machines are in a state",
		Long: `Wait until each of the virtual machines is in a state:

  running            the guest runs
  stopped            no guest runs, and none is about to
  ready              its condition Ready is True
  agent              the guest agent is connected
  ip                 the guest has an address
  login              the serial console shows a login prompt, or what --prompt matches
  deleted            the machine is gone
  condition=TYPE[=STATUS]     a condition of the VM or, when the VM has none of that type, of its instance
  jsonpath=EXPRESSION[=VALUE] a field of the VM, or of the instance with vmi/NAME

login reads the console beside whoever uses it and disturbs nobody. Nothing is printed but for -o. The exit
code is 0 when all are there, 8 when the time is up, 3 when there is no such machine.`,
		Example: cli.Examples(f.Program, `
			virtctl wait demo --for=running
			virtctl wait demo --for=login --timeout 2m
			virtctl wait demo --for=condition=AgentConnected
			virtctl wait demo --for=jsonpath='{.status.printableStatus}'=Paused
			virtctl wait vmi/demo --for=ip -o jsonpath='{.status.interfaces[0].ipAddress}'`),
		Args:              cli.Args(1, -1, "the name of a VM"),
		ValidArgsFunction: completion.VMs(f, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Names = args
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.For, "for", "", "What to wait for, a `CONDITION`; see above")
	cmd.Flags().StringVar(&o.Prompt, "prompt", "", "Regular expression (`REGEXP`) that --for=login looks for at the end of a line, instead of a login prompt")
	cmd.Flags().Var(&o.Timeout, "timeout", "How long to wait; 0 looks once, a negative value is no limit")
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "for", wait.Names()...)
	return cmd
}

// Run waits for the machines in turn, all within the same time.
func Run(ctx context.Context, o *Options) error {
	if o.For == "" {
		return cli.UsageErrorf("--for is missing; it is one of %s", strings.Join(wait.Names(), ", "))
	}
	if err := o.Output.Validate(); err != nil {
		return err
	}
	prompt := wait.LoginPrompt
	if o.Prompt != "" {
		var err error
		if prompt, err = regexp.Compile("(?m)(?:" + o.Prompt + ")"); err != nil {
			return cli.UsageErrorf("--prompt: %s", err)
		}
	}
	if o.For != wait.LoginName {
		if _, err := wait.Parse(o.For, false); err != nil {
			return cli.UsageErrorf("--for: %s", err)
		}
	}
	ns, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	targets := make([]cli.Target, len(o.Names))
	for i, name := range o.Names {
		if targets[i], err = cli.ParseTarget(name, ns); err != nil {
			return err
		}
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if o.Timeout.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout.Duration)
		defer cancel()
	}
	for _, t := range targets {
		state, err := o.one(ctx, c, t, prompt)
		if err != nil {
			return err
		}
		if err := o.print(t, state); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) one(ctx context.Context, c *client.Client, t cli.Target, prompt *regexp.Regexp) (wait.State, error) {
	if o.For == wait.LoginName {
		dial := func(ctx context.Context) (io.ReadCloser, error) {
			return c.Console(ctx, t.Namespace, t.Name, url.Values{"join": {"true"}, "tail": {strconv.Itoa(wait.ConsoleTail)}})
		}
		state, _, err := wait.Login(ctx, c, dial, t.Namespace, t.Name, prompt)
		return state, err
	}
	condition, err := wait.Parse(o.For, t.Instance)
	if err != nil {
		return wait.State{}, cli.UsageErrorf("--for: %s", err)
	}
	if o.Timeout.Duration == 0 {
		return wait.Now(ctx, c, t.Namespace, t.Name, condition)
	}
	return wait.Until(ctx, c, t.Namespace, t.Name, condition)
}

func (o *Options) print(t cli.Target, s wait.State) error {
	if !o.Output.Given() {
		return nil
	}
	switch {
	case s.VM != nil && !t.Instance:
		return o.Output.Print(s.VM, o.Factory.IO.Out)
	case s.VMI != nil:
		return o.Output.Print(s.VMI, o.Factory.IO.Out)
	}
	return fmt.Errorf("there is no object of %s/%s left to print", t.Namespace, t.Name)
}
