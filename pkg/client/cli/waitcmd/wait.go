// Package waitcmd is `virtctl wait`.
package waitcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl wait`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Names   []string
	// Selector chooses machines by their labels instead of Names.
	Selector string
	// All chooses every VM of the namespace.
	All     bool
	For     string
	Prompt  string
	Timeout cli.Timeout
}

// NewCmdWait makes the command.
func NewCmdWait(f *cli.Factory) *cobra.Command {
	o := &Options{
		Factory: f,
		Output:  cli.NewOutput(),
		Timeout: cli.Timeout{Duration: 5 * time.Minute, Unit: time.Second, Signed: true},
	}
	cmd := &cobra.Command{
		Use:   "wait (NAME... | -l SELECTOR | --all) --for=CONDITION",
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

login reads the console beside whoever uses it and disturbs nobody; a prompt from before a restart of the guest,
or before it moved to another node, does not count. Nothing is printed but for -o. The exit code is 0
when all are there, 8 when the time is up, 3 when there is no such machine. Several machines are
waited for at the same time; -l and --all take those that are there at its beginning.`,
		Example: cli.Examples(f.Program, `
			virtctl wait demo --for=running
			virtctl wait demo --for=login --timeout 2m
			virtctl wait -l app=web --for=ready
			virtctl wait --all --for=stopped
			virtctl wait web1 web2 --for=delete
			virtctl wait demo --for=condition=AgentConnected
			virtctl wait demo --for=jsonpath='{.status.printableStatus}'=Paused
			virtctl wait vmi/demo --for=ip -o jsonpath='{.status.interfaces[0].ipAddress}'`),
		Args:              cli.Args(0, -1, "the names of VMs"),
		ValidArgsFunction: completioncmd.Machines(f, completioncmd.VMs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Names = args
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().
		StringVarP(&o.Selector, "selector", "l", "", "Label `SELECTOR`, such as app=web, of the VMs to wait for")
	cmd.Flags().BoolVar(&o.All, "all", false, "Wait for all VMs of the namespace")
	cmd.Flags().StringVar(&o.For, "for", "", "What to wait for, a `CONDITION`; see above")
	cmd.Flags().StringVar(&o.Prompt, "prompt", "", "Regular expression (`REGEXP`) that --for=login looks for at the "+
		"end of a line, instead of a login prompt")
	cmd.Flags().Var(&o.Timeout, "timeout", "How long to wait; 0 looks once, a negative value is no limit")
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "for", wait.Names()...)
	return cmd
}

// Run waits for the machines at the same time.
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
		if o.Prompt != "" {
			return cli.UsageErrorf("--prompt needs --for=%s", wait.LoginName)
		}
		if _, err := wait.Parse(o.For, false); err != nil {
			return cli.UsageErrorf("--for: %s", err)
		}
	}
	if err := cli.CheckSelector(o.Selector); err != nil {
		return err
	}
	if err := o.checkChoice(); err != nil {
		return err
	}
	ns, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	targets, err := cli.ParseTargets(o.Names, ns)
	if err != nil {
		return err
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	ctx, cancel := o.Timeout.Limit(ctx)
	defer cancel()
	if len(o.Names) == 0 {
		if targets, err = o.selected(ctx, c, ns); err != nil {
			return err
		}
	}
	return o.all(ctx, c, targets, prompt)
}

// checkChoice returns an error unless exactly one of names, -l and --all chooses the VMs.
func (o *Options) checkChoice() error {
	given := 0
	for _, is := range []bool{len(o.Names) > 0, o.Selector != "", o.All} {
		if is {
			given++
		}
	}
	if given != 1 {
		return cli.UsageErrorf("name the VMs to wait for, or choose them with -l or --all")
	}
	return nil
}

// selected returns the VMs that the selector matches now, or all with --all. None at all is an error, unless the wait
// is for their end.
func (o *Options) selected(ctx context.Context, c *client.Client, ns string) ([]cli.Target, error) {
	out, err := cli.Selected(ctx, c, ns, o.Selector)
	if err != nil || len(out) > 0 {
		return out, err
	}
	if condition, err := wait.Parse(o.For, false); err == nil && condition.Gone {
		return nil, nil
	}
	if o.All {
		return nil, fmt.Errorf("VMs %w in namespace %q", action.ErrNotFound, ns)
	}
	return nil, fmt.Errorf("VMs with labels %s %w in namespace %q", o.Selector, action.ErrNotFound, ns)
}

// all waits for each target at the same time, and prints in their order those that are there.
func (o *Options) all(ctx context.Context, c *client.Client, targets []cli.Target, prompt *regexp.Regexp) error {
	states, failures := make([]wait.State, len(targets)), make([]error, len(targets))
	var waits sync.WaitGroup
	for i, t := range targets {
		waits.Go(func() {
			state, err := o.one(ctx, c, t, prompt)
			states[i], failures[i] = state, o.blocked(ctx, c, t, state, err)
		})
	}
	var names []string
	for _, t := range targets {
		names = append(names, t.Name)
	}
	_ = o.Factory.IO.While(fmt.Sprintf("waiting for %s: %s", strings.Join(names, ", "), o.For), func() error {
		waits.Wait()
		return nil
	})
	var objects []runtime.Object
	for i, t := range targets {
		if object := object(t, states[i]); failures[i] == nil && object != nil {
			objects = append(objects, object)
		}
	}
	alone := len(targets) == 1 && len(o.Names) > 0
	var err error
	if o.Output.Given() && (len(objects) > 0 || !alone) {
		err = o.Output.PrintAll(objects, alone, o.Factory.IO.Out)
	}
	return cli.Joined(cli.Joined(failures...), err)
}

// lookLimit bounds one look at a console, whose end nobody tells.
const lookLimit = 3 * time.Second

func (o *Options) one(ctx context.Context, c *client.Client, t cli.Target, prompt *regexp.Regexp) (wait.State, error) {
	if o.For == wait.LoginName {
		if o.Timeout.Duration == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, lookLimit)
			defer cancel()
		}
		dial := func(ctx context.Context) (io.ReadCloser, error) {
			return c.Console(ctx, t.Namespace, t.Name,
				url.Values{"join": {"true"}, "tail": {strconv.Itoa(wait.ConsoleTail)}, "sinceReset": {"true"}})
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

// whyLimit bounds how long it is looked for what blocks a VM, after the time is up.
const whyLimit = 5 * time.Second

// blocked adds to the error of a wait that has taken too long what blocks the VM, as far as that can be read.
func (o *Options) blocked(
	ctx context.Context, c *client.Client, t cli.Target, state wait.State, err error,
) error {
	if !errors.Is(err, action.ErrTimeout) || o.Timeout.Duration == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), whyLimit)
	defer cancel()
	facts, unread := gather.Facts(ctx, c, t.Namespace, t.Name, o.Factory.Now())
	if unread != nil {
		return o.more(err, t, state, "")
	}
	report := why.Explain(facts)
	for i := range report.Causes {
		if cause := &report.Causes[i]; cause.State == why.Broken || cause.State == why.Waiting {
			return o.more(err, t, state, cause.Message)
		}
	}
	return err
}

// more returns the error of a wait with what blocks the VM, unless it says so already, and the command that says more.
// The reason of the VM's condition is left out if what blocks the VM contains it.
func (o *Options) more(err error, t cli.Target, state wait.State, blocks string) error {
	name := t.Name
	if t.Instance {
		name = "vmi/" + name
	}
	said := err.Error()
	switch reason := wait.Reason(state); {
	case blocks == "" || strings.Contains(said, blocks):
	case reason != "" && strings.Contains(blocks, reason) && strings.HasSuffix(said, "; "+reason):
		said = strings.TrimSuffix(said, reason) + blocks
	default:
		said += "; " + blocks
	}
	said += fmt.Sprintf("; `%s why %s -n %s` says more", o.Factory.Program, name, t.Namespace)
	return &late{said, err}
}

// late is the error of a wait that has taken too long, in more words.
type late struct {
	text string
	err  error
}

func (e *late) Error() string { return e.text }
func (e *late) Unwrap() error { return e.err }

// object returns what was waited for, nil when it is gone.
func object(t cli.Target, s wait.State) runtime.Object {
	switch {
	case s.VM != nil && !t.Instance:
		return s.VM
	case s.VMI != nil:
		return s.VMI
	}
	return nil
}
