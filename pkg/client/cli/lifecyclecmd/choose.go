package lifecyclecmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// targets returns the machines that the verb is about: those named, or those that the selector finds and the user
// confirms.
func (o *Options) targets(ctx context.Context) ([]lifecycle.Target, error) {
	ns, err := o.Factory.Namespace()
	if err != nil {
		return nil, err
	}
	if !o.Selection.Given() {
		if len(o.Names) > 1 && o.byNode(o.Names) {
			return o.evacuating(ctx, o.Names[1:])
		}
		return o.named(ns)
	}
	if o.Verb.Disrupts() && !o.Selection.Yes && o.DryRun == cli.DryRunNone && !o.Factory.IO.CanAsk() {
		return nil, cli.UsageErrorf("%s disrupts the guests that %s chooses; add --yes to say that you mean it, or "+
			"see with --dry-run which they are", o.Verb, o.rule())
	}
	if o.Selection.AllNamespaces {
		ns = ""
	}
	c, err := o.Factory.Client()
	if err != nil {
		return nil, err
	}
	choice, err := lifecycle.Choose(ctx, c, o.Verb, o.WithDisks, ns, o.Selection.Selector)
	if err != nil {
		return nil, err
	}
	if o.Plan {
		choice.PlanAll() // which says of each why it cannot
	}
	o.printSkipped(choice, ns)
	if len(choice.Targets) == 0 {
		return nil, nil
	}
	return choice.Targets, o.confirm(ctx, choice.Targets)
}

// byNode reports whether arguments name nodes, and not machines.
func (o *Options) byNode(args []string) bool {
	return o.Verb == lifecycle.EvacuateCancel && len(args) > 0 &&
		slices.Contains([]string{"node", "nodes"}, strings.ToLower(args[0]))
}

func (o *Options) rule() string {
	if o.Selection.All {
		return "--all"
	}
	return "-l " + o.Selection.Selector
}

func (o *Options) named(ns string) ([]lifecycle.Target, error) {
	parsed, err := cli.ParseTargets(o.Names, ns)
	if err != nil {
		return nil, err
	}
	var out []lifecycle.Target
	for _, t := range parsed {
		if t.Instance && !o.Verb.TakesInstance() {
			hint := ""
			if o.Verb == lifecycle.Stop {
				hint = fmt.Sprintf("; `%s delete vmi/%s` ends one that has no VM", o.Factory.Program, t.Name)
			}
			return nil,
				cli.UsageErrorf("%q: only a VM can be asked to %s, not an instance%s", "vmi/"+t.Name, o.Verb, hint)
		}
		out = append(out, lifecycle.Target{Namespace: t.Namespace, Name: t.Name, Instance: t.Instance})
	}
	return out, nil
}

// evacuating returns the instances that are to leave the nodes, in every namespace that the user may see.
func (o *Options) evacuating(ctx context.Context, nodes []string) ([]lifecycle.Target, error) {
	if slices.Contains(nodes, "") {
		return nil, cli.UsageErrorf("a node's name is empty; name the node that guests are to leave no more")
	}
	c, err := o.Factory.Client()
	if err != nil {
		return nil, err
	}
	vmis, err := c.VMIList(ctx, "", metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	var out []lifecycle.Target
	idle := slices.Clone(nodes) // those that nothing is to leave: they may be misspelt
	for i := range vmis.Items {
		if vmi := &vmis.Items[i]; slices.Contains(nodes, vmi.Status.EvacuationNodeName) {
			out = append(out,
				lifecycle.Target{Namespace: vmi.Namespace, Name: vmi.Name, Instance: true, UID: vmi.UID})
			idle = slices.DeleteFunc(idle, func(node string) bool { return node == vmi.Status.EvacuationNodeName })
		}
	}
	if err := exist(ctx, c, idle); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		fmt.Fprintf(o.Factory.IO.ErrOut, "no machine is to leave %s\n", strings.Join(nodes, ", "))
	}
	return out, nil
}

// exist returns an error for the first of the nodes that the cluster does not have, as far as the user may see nodes.
func exist(ctx context.Context, c *client.Client, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	all, err := c.Names(ctx, "/api/v1", "", "nodes")
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, node := range nodes {
		if !slices.Contains(all, node) {
			return fmt.Errorf("nodes %q %w", node, action.ErrNotFound)
		}
	}
	return nil
}

// printSkipped prints that there is nothing to do, and at a terminal which machines match and are left alone.
func (o *Options) printSkipped(choice lifecycle.Choice, ns string) {
	if len(choice.Targets)+len(choice.Skipped) == 0 {
		where := ""
		if ns != "" {
			where = " in namespace " + ns
		}
		fmt.Fprintf(o.Factory.IO.ErrOut, "No virtual machines found for %s%s.\n", o.rule(), where)
		return
	}
	if o.Factory.IO.ErrIsTTY {
		for _, s := range choice.Skipped {
			fmt.Fprintf(o.Factory.IO.ErrOut, "%s: skipped, %s\n", o.name(s.Target), s.Why)
		}
	}
	if len(choice.Targets) == 0 {
		fmt.Fprintf(o.Factory.IO.ErrOut, "no machine to %s\n", o.Verb)
	}
}

// name returns a machine's name as a list shows it: with the namespace only where there may be several.
func (o *Options) name(t lifecycle.Target) string {
	name := t.Name
	if t.Instance {
		name = "vmi/" + name
	}
	if o.Selection.AllNamespaces {
		name = t.Namespace + "/" + name
	}
	return name
}

func (o *Options) nameAll(targets []lifecycle.Target) string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = o.name(t)
	}
	return strings.Join(names, ", ")
}

// confirm asks, once, whether the machines that a selector found are those that are meant.
func (o *Options) confirm(ctx context.Context, targets []lifecycle.Target) error {
	if o.Plan || o.Selection.Yes || o.DryRun != cli.DryRunNone || !o.Factory.IO.CanAsk() {
		return nil
	}
	machines := fmt.Sprintf("these %d virtual machines", len(targets))
	if len(targets) == 1 {
		machines = "this virtual machine"
	}
	where := ""
	if !o.Selection.AllNamespaces {
		where = " of namespace " + targets[0].Namespace
	}
	if c := o.Factory.Connection().Context; c != "" {
		where += fmt.Sprintf(" in context %q", c)
	}
	question := fmt.Sprintf("%s\n%s %s%s?", o.nameAll(targets), strings.ToUpper(string(o.Verb[:1]))+string(o.Verb[1:]),
		machines, where)
	return cli.MustConfirm(ctx, o.Factory.IO, question)
}

var _ lifecycle.API = (*client.Client)(nil)
