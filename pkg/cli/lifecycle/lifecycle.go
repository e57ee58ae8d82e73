// Package lifecycle is `virtctl start`, `stop` and `restart`.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/action/client"
	"github.com/virtkit/virtkit/pkg/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/action/wait"
	"github.com/virtkit/virtkit/pkg/cli"
	"github.com/virtkit/virtkit/pkg/cli/completion"
)

// Options of the three verbs.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Verb    lifecycle.Verb
	Names   []string

	Force       bool
	GracePeriod cli.Seconds
	DryRun      cli.DryRun
	Wait        bool
	Timeout     cli.Timeout
}

// unset is KubeVirt's default of --grace-period: what the VM's spec says.
const unset = -1

type runFunc func(context.Context, *Options) error

// NewCmdStart makes `virtctl start`; runF replaces Run in tests.
func NewCmdStart(f *cli.Factory, runF runFunc) *cobra.Command {
	o := newOptions(f, lifecycle.Start)
	cmd := o.command(runF, "Start virtual machines", `
		virtctl start demo
		virtctl start demo db --wait --timeout 2m`)
	return cmd
}

// NewCmdStop makes `virtctl stop`; runF replaces Run in tests.
func NewCmdStop(f *cli.Factory, runF runFunc) *cobra.Command {
	o := newOptions(f, lifecycle.Stop)
	cmd := o.command(runF, "Stop virtual machines", `
		virtctl stop demo
		virtctl stop demo --wait
		virtctl stop demo --force --grace-period 0`)
	o.addGraceFlags(cmd)
	return cmd
}

// NewCmdRestart makes `virtctl restart`; runF replaces Run in tests.
func NewCmdRestart(f *cli.Factory, runF runFunc) *cobra.Command {
	o := newOptions(f, lifecycle.Restart)
	cmd := o.command(runF, "Restart virtual machines", `
		virtctl restart demo
		virtctl restart demo --wait
		virtctl restart demo --force`)
	o.addGraceFlags(cmd)
	return cmd
}

func newOptions(f *cli.Factory, verb lifecycle.Verb) *Options {
	return &Options{
		Factory:     f,
		Output:      cli.NewOutput(),
		Verb:        verb,
		GracePeriod: unset,
		Timeout:     cli.Timeout{Duration: 5 * time.Minute, Unit: time.Second},
	}
}

func (o *Options) command(runF runFunc, short, examples string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               string(o.Verb) + " NAME...",
		Short:             short,
		Example:           cli.Examples(o.Factory.Program, examples),
		Args:              cli.Args(1, -1, "the name of a VM"),
		ValidArgsFunction: completion.VMs(o.Factory, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Names = args
			if err := o.validate(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "Wait until it is done")
	cmd.Flags().Var(&o.Timeout, "timeout", "How long to wait with --wait; 0 is no limit")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) addGraceFlags(cmd *cobra.Command) {
	cmd.Flags().Var(&o.GracePeriod, "grace-period", "Time the guest is given to shut down, in seconds or as a duration; -1 is what its spec says")
	cmd.Flags().BoolVar(&o.Force, "force", false, "Do not wait for the guest to shut down; means --grace-period 0 when that is not given")
}

func (o *Options) validate() error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if o.Force && o.GracePeriod == unset {
		o.GracePeriod = 0
	}
	if o.DryRun != cli.DryRunNone && o.Wait {
		return cli.UsageErrorf("--wait cannot be given with --dry-run: nothing will change")
	}
	return nil
}

// Run requests the verb of each machine in turn, then waits for all of them at once. It goes on after a failure and
// returns all errors.
func Run(ctx context.Context, o *Options) error {
	ns, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	targets := make([]cli.Target, len(o.Names))
	for i, name := range o.Names {
		if targets[i], err = cli.ParseTarget(name, ns); err != nil {
			return err
		}
		if targets[i].Instance {
			return cli.UsageErrorf("%q: only a VM can be asked to %s; an instance has no other state to return to", name, o.Verb)
		}
	}
	if o.DryRun == cli.DryRunClient {
		return o.reportDry(targets)
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	var errs []error
	var requested []request
	for _, t := range targets {
		r, err := o.request(ctx, c, t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		requested = append(requested, r)
	}
	if o.Wait {
		errs = append(errs, o.wait(ctx, c, requested)...)
	}
	return joined(errs)
}

func joined(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return utilerrors.NewAggregate(errs)
}

// request is a verb that the server has accepted.
type request struct {
	target cli.Target
	// instance is the UID of the instance that was there before, for a restart to be seen.
	instance string
}

func (o *Options) options() lifecycle.Options {
	l := lifecycle.Options{DryRun: o.DryRun == cli.DryRunServer}
	if o.GracePeriod != unset {
		seconds := int64(o.GracePeriod)
		l.GracePeriodSeconds = &seconds
	}
	return l
}

func (o *Options) request(ctx context.Context, c *client.Client, t cli.Target) (request, error) {
	r := request{target: t}
	if o.Wait && o.Verb == lifecycle.Restart {
		vmi, err := c.VMI(ctx, t.Namespace, t.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return r, fmt.Errorf("look at instance %s/%s: %w", t.Namespace, t.Name, err)
		}
		if err == nil {
			r.instance = string(vmi.UID)
		}
	}
	if err := lifecycle.Do(ctx, c, o.Verb, t.Namespace, t.Name, o.options()); err != nil {
		return r, err
	}
	if o.Output.Given() {
		if o.Wait {
			return r, nil // printed when it is done
		}
		vm, err := c.VM(ctx, t.Namespace, t.Name)
		if err != nil {
			return r, fmt.Errorf("look at VM %s/%s: %w", t.Namespace, t.Name, err)
		}
		return r, o.Output.Print(vm, o.Factory.IO.Out)
	}
	return r, o.report(t)
}

// report says what KubeVirt's virtctl says.
func (o *Options) report(t cli.Target) error {
	_, err := fmt.Fprintf(o.Factory.IO.Out, "VM %s was scheduled to %s%s\n", t.Name, o.Verb, o.DryRun.Suffix())
	return err
}

func (o *Options) reportDry(targets []cli.Target) error {
	for _, t := range targets {
		if err := o.report(t); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for all requests at once.
func (o *Options) wait(ctx context.Context, c *client.Client, requests []request) []error {
	if o.Timeout.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout.Duration)
		defer cancel()
	}
	states := make([]wait.State, len(requests))
	failures := make([]error, len(requests))
	var group sync.WaitGroup
	for i, r := range requests {
		group.Go(func() {
			states[i], failures[i] = wait.Until(ctx, c, r.target.Namespace, r.target.Name, o.condition(r))
		})
	}
	group.Wait()
	var errs []error
	for i, err := range failures {
		if err == nil && o.Output.Given() {
			err = o.Output.Print(states[i].VM, o.Factory.IO.Out)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 && errors.Is(ctx.Err(), context.Canceled) {
		return []error{ctx.Err()}
	}
	return errs
}

func (o *Options) condition(r request) wait.Condition {
	switch o.Verb {
	case lifecycle.Stop:
		return wait.Stopped()
	case lifecycle.Restart:
		return wait.RunningAfter(r.instance)
	}
	return wait.Running()
}
