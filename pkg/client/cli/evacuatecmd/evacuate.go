// Package evacuatecmd is `virtctl evacuate`.
package evacuatecmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl evacuate`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Node    string
	Plan    bool
	// WithDisks brings disks that only the node has.
	WithDisks bool
	NoCordon  bool
	Yes       bool
	DryRun    cli.DryRun

	cli.Waiting
}

// NewCmdEvacuate makes the command.
func NewCmdEvacuate(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "evacuate NODE",
		Short: "Empty a node of its virtual machines",
		Long: `Empty a node of its virtual machines.

The node is cordoned, and every guest's pod on it is evicted, as kubectl drain does, which leaves other pods
alone here. What becomes of a guest its eviction strategy says, or else the cluster's: it moves to another node,
as many at a time as the limits of migrations allow; it is shut down, and its run strategy starts it elsewhere;
or it stays, because it must not be shut down and cannot move.

With --with-disks guests that only their disks keep from moving, since these are on claims of one node, move with
them: the disks are copied to new claims while the guests run, and the old claims are kept.

--plan shows that beforehand and does nothing. Where a guest would go is a guess from what the nodes have left and
the VM asks for: the scheduler decides when the time has come.

It asks first when guests would be shut down; where nobody can be asked, --yes must be given then.

It ends with 1 when a guest cannot leave, and with --wait only when all have left, or with 8 when the time is up.
evacuate-cancel cancels what has not begun; kubectl uncordon lets the node have VMs again.`,
		Example: cli.Examples(f.Program, `
			virtctl evacuate node1 --plan
			virtctl evacuate node1 --wait --timeout 30m
			virtctl evacuate node1 --with-disks --plan
			virtctl evacuate node1 --yes </dev/null
			virtctl evacuate node1 --plan -o json | jq -r '.guests[] | select(.outcome == "stays") | .name'`),
		Args:              cli.Args(1, 1, "the name of a node"),
		ValidArgsFunction: completioncmd.Nodes(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Node = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Plan, "plan", false, "Show what would become of each guest, and do nothing")
	cmd.Flags().BoolVar(&o.WithDisks, "with-disks", false, "Move guests with disks that only this node has, which are "+
		"copied to new claims")
	cmd.Flags().
		BoolVar(&o.NoCordon, "no-cordon", false, "Do not cordon the node: VMs may be placed on it again at once")
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "Do not ask before guests are shut down")
	o.AddFlags(cmd, "all guests that are to leave have left", 10*time.Minute)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) validate() error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if o.Plan && o.Wait {
		return cli.UsageErrorf("--wait cannot be given with --plan: nothing will change")
	}
	return o.CheckWait(o.DryRun)
}

// Run plans, asks where guests would be shut down, evacuates and prints what became of each guest.
func Run(ctx context.Context, o *Options) error {
	streams := o.Factory.IO
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	var facts evacuate.Facts
	err = streams.While("looking at node "+o.Node, func() (err error) {
		facts, err = evacuate.Gather(ctx, c, o.Node)
		return err
	})
	if err != nil {
		return err
	}
	facts.WithDisks = o.WithDisks
	report := evacuate.NewPlan(facts)
	if o.Plan || o.DryRun == cli.DryRunClient {
		if err := o.print(report); err != nil {
			return err
		}
		return exit(report)
	}
	if err := o.confirm(ctx, report); err != nil {
		return err
	}
	report, err = o.carryOut(ctx, c, report)
	if perr := o.print(report); perr != nil {
		return perr
	}
	if err == nil && o.DryRun == cli.DryRunNone && streams.ErrIsTTY {
		fmt.Fprintln(streams.ErrOut, summary(report))
	}
	return err
}

// exit returns a plan's exit code: it fails when a guest cannot leave, or would not start again elsewhere.
func exit(r *evacuate.Report) error {
	for i := range r.Guests {
		if r.Guests[i].Outcome == evacuate.Stays || r.Guests[i].Stranded() {
			return &cli.ExitError{Code: cli.ExitFailure}
		}
	}
	return nil
}

func (o *Options) confirm(ctx context.Context, r *evacuate.Report) error {
	down, stranded := 0, 0
	for i := range r.Guests {
		if r.Guests[i].Stranded() {
			stranded++
		}
		if outcome := r.Guests[i].Outcome; outcome == evacuate.Restarts || outcome == evacuate.Ends {
			down++
		}
	}
	if down == 0 || o.Yes || o.DryRun != cli.DryRunNone {
		return nil
	}
	if !o.Factory.IO.CanAsk() {
		return cli.UsageErrorf("%d of the %d guests of node %s would be shut down; add --yes to say that you mean it, "+
			"or see with --plan which they are", down, len(r.Guests), r.Node)
	}
	if err := table(o.Factory.IO.ErrOut, r); err != nil {
		return err
	}
	question := fmt.Sprintf("Evacuate node %s? %d of its %d guests will be shut down.", r.Node, down, len(r.Guests))
	if stranded > 0 {
		question += fmt.Sprintf(" %d of them cannot start on another node now.", stranded)
	}
	yes, err := cli.Confirm(ctx, o.Factory.IO, question)
	if err == nil && !yes {
		err = fmt.Errorf("node %s was not evacuated", r.Node)
	}
	return err
}

// carryOut evacuates; on a terminal it prints each guest as it goes.
func (o *Options) carryOut(ctx context.Context, c *client.Client, plan *evacuate.Report) (*evacuate.Report, error) {
	streams := o.Factory.IO
	if o.Wait {
		var cancel context.CancelFunc
		ctx, cancel = o.Timeout.Limit(ctx)
		defer cancel()
	}
	options := evacuate.Options{
		NoCordon: o.NoCordon, DryRun: o.DryRun == cli.DryRunServer, Wait: o.Wait,
		Now: o.Factory.Now,
	}
	if streams.ErrIsTTY {
		printed := map[string]string{}
		options.Notify = func(r *evacuate.Report) {
			for i := range r.Guests {
				g := &r.Guests[i]
				name, line := g.Namespace+"/"+g.Name, sentence(g, r.Node)
				if printed[name] != line {
					printed[name] = line
					fmt.Fprintln(streams.ErrOut, line)
				}
			}
		}
	}
	report, err := evacuate.Run(ctx, c, plan, options)
	if o.DryRun == cli.DryRunNone {
		streams.Requested(err, true, "evacuation of node %s", o.Node)
		streams.Interrupted(err, "`%s evacuate %s` asks those again that were refused, and says who is left",
			o.Factory.Program, o.Node)
	}
	return report, err
}

func (o *Options) print(r *evacuate.Report) error {
	if o.Output.Given() {
		return o.Output.Print(r, o.Factory.IO.Out)
	}
	return table(o.Factory.IO.Out, r)
}

func table(w io.Writer, r *evacuate.Report) error {
	if len(r.Guests) == 0 {
		_, err := fmt.Fprintf(w, "No virtual machine runs on node %s.\n", r.Node)
		return err
	}
	out := cli.NewTable(w)
	last := "STATE"
	if r.Planned {
		last = "OUTCOME"
	}
	out.Row("NAMESPACE", "NAME", "STRATEGY", last, "NODE", "REASON")
	for i := range r.Guests {
		g := &r.Guests[i]
		what, where := string(g.State), cmp.Or(g.Now, g.Target, "-")
		if r.Planned {
			what = string(g.Outcome)
		}
		out.Row(g.Namespace, g.Name, g.Strategy, cmp.Or(what, "-"), where, cmp.Or(g.Reason, disks(g)))
	}
	return out.Flush()
}
