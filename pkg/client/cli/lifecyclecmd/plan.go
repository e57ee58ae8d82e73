package lifecyclecmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// runPlan prints what the migrations would be, and starts none. If one is not possible, it returns an error once all
// are printed.
func (o *Options) runPlan(ctx context.Context, c *client.Client) error {
	targets, err := o.targets(ctx)
	if err != nil {
		return err
	}
	var errs []error
	var plans []runtime.Object
	for i, t := range targets {
		facts, err := migrate.Gather(ctx, c, t.Namespace, t.Name, o.WithDisks)
		if err != nil {
			errs = append(errs, o.Factory.NotRunning(ctx, c, named(t), err))
			continue
		}
		facts.To, facts.NodeSelector = o.To, o.NodeSelector
		plan := migrate.NewPlan(facts)
		if plans = append(plans, plan); !o.Output.Given() {
			if i > 0 {
				fmt.Fprintln(o.Factory.IO.Out)
			}
			if err := writePlan(o.Factory.IO.Out, plan); err != nil {
				return err
			}
		}
		if !plan.Possible {
			errs = append(errs,
				fmt.Errorf("VM %s/%s cannot migrate: %s%s", t.Namespace, t.Name, strings.Join(plan.Obstacles, "; "),
					o.helps(plan)))
		}
	}
	alone := len(targets) == 1 && !o.Selection.Given()
	if o.Output.Given() && (len(plans) > 0 || !alone) {
		if err := o.Output.PrintAll(plans, alone, o.Factory.IO.Out); err != nil {
			return err
		}
	}
	return cli.Joined(errs...)
}

// helps says what moves a guest that cannot move without its disks.
func (o *Options) helps(p *migrate.Plan) string {
	if !p.WithDisksHelps {
		return ""
	}
	return fmt.Sprintf("; `%s migrate %s%s --with-disks` can", o.Factory.Program, p.Name,
		o.Factory.InNamespace(p.Namespace))
}

// writePlan writes a plan for people.
func writePlan(out io.Writer, p *migrate.Plan) error {
	w := cli.NewTable(out)
	line := func(key, format string, args ...any) {
		w.Row(key, fmt.Sprintf(format, args...))
	}
	line("VM", "%s/%s on %s", p.Namespace, p.Name, p.From)
	for i, n := range p.Nodes {
		key := ""
		if i == 0 {
			key = "To"
		}
		if n.Fits {
			line(key, "%s", n.Name)
		} else {
			line(key, "not %s: %s", n.Name, strings.Join(n.Reasons, "; "))
		}
	}
	line("Memory", "%s", migrate.Bytes(uint64(max(0, p.MemoryBytes))))
	for i := range p.Disks {
		d := &p.Disks[i]
		key := ""
		if i == 0 {
			key = "Disks"
		}
		size := ""
		if d.Bytes > 0 {
			size = ", at most " + migrate.Bytes(uint64(d.Bytes))
		}
		line(key, "%s: %s%s", d.Volume, d.Becomes(), size)
	}
	policy := p.Policy
	if policy == "" {
		policy = "none"
	}
	line("Policy", "%s", policy)
	c := p.Configuration
	bandwidth := "no limit"
	if n := c.BandwidthPerMigration.Value(); n > 0 {
		bandwidth = migrate.Bytes(uint64(n)) + "/s"
	}
	line("Bandwidth", "%s", bandwidth)
	line("Time", "%d s for each GiB, then %s; %d s without progress", *c.CompletionTimeoutPerGiB,
		means(*c.AllowWorkloadDisruption, *c.AllowPostCopy), *c.ProgressTimeout)
	if *c.AllowAutoConverge {
		line("Auto-converge", "allowed")
	}
	for _, text := range p.Waits {
		line("Waits", "%s", text)
	}
	for _, text := range p.Obstacles {
		line("Obstacle", "%s", text)
	}
	if p.WithDisksHelps {
		line("Helps", "--with-disks copies the disks to new claims while the guest runs")
	}
	if len(p.Unread) > 0 {
		line("Not read", "%s: you may not", strings.Join(p.Unread, ", "))
	}
	return w.Flush()
}

// means returns what is done to a migration whose time is over.
func means(disruption, postCopy bool) string {
	switch {
	case disruption && postCopy:
		return "post-copy"
	case disruption:
		return "the guest stands still"
	}
	return "it is given up"
}
