// Package eventscmd is `virtctl events`.
package eventscmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/events"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl events`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output

	Chosen        cli.Chosen
	AllNamespaces bool
	Watch         bool
	Types         []string
	Since         cli.Timeout

	table *cli.Table
}

// NewCmdEvents makes the command.
func NewCmdEvents(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(), Since: cli.Timeout{Unit: time.Second}}
	cmd := &cobra.Command{
		Use:   "events [NAME... | -l SELECTOR]",
		Short: "Show what happened to virtual machines, their instances, migrations and pods",
		Long: `Show what happened to virtual machines, their instances, migrations and pods, in one table, the oldest first.

The exit code is 3 when one of several names is not there, after the events of the others; then --watch does not go
on. -l takes the VMs that are there at its beginning.`,
		Example: cli.Examples(f.Program, `
			virtctl events
			virtctl events demo --watch
			virtctl events web db
			virtctl events -l app=web
			virtctl events -A --types Warning
			virtctl events demo --since 10m`),
		Args:              cli.Args(0, -1, "the names of VMs"),
		ValidArgsFunction: completioncmd.Machines(f, completioncmd.VMs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Chosen.Names = args
			if err := o.Chosen.Validate(cmd, false); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	o.Chosen.AddFlag(cmd)
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "Show the events of all namespaces")
	flags.BoolVarP(&o.Watch, "watch", "w", false, "Go on with what happens")
	flags.BoolVarP(&o.Watch, "follow", "f", false, "The same as --watch")
	flags.StringSliceVar(&o.Types, "types", nil, "Only events of these `TYPES`: Normal, Warning")
	flags.Var(&o.Since, "since", "Only what was seen within a duration such as 10m")
	flags.BoolVar(&o.Output.NoHeaders, "no-headers", false, "Leave out the column titles")
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "types", corev1.EventTypeNormal, corev1.EventTypeWarning)
	return cmd
}

func (o *Options) validate() error {
	for _, t := range o.Types {
		if !strings.EqualFold(t, corev1.EventTypeNormal) && !strings.EqualFold(t, corev1.EventTypeWarning) {
			return cli.UsageErrorf("--types: %q is not Normal or Warning", t)
		}
	}
	if o.AllNamespaces && len(o.Chosen.Names) > 0 {
		return cli.UsageErrorf("a name cannot be given with --all-namespaces")
	}
	if o.AllNamespaces && o.Chosen.Selector != "" {
		return cli.UsageErrorf("-l cannot be given with --all-namespaces; choose a namespace with -n")
	}
	return o.Output.Validate()
}

// Run prints what has happened, then what happens.
func Run(ctx context.Context, o *Options) error {
	c, selection, err := o.selection(ctx)
	if err != nil {
		return err
	}
	list, err := events.List(ctx, c, selection)
	if err != nil {
		return err
	}
	absent := o.absent(ctx, c, selection, list.Items)
	if absent != nil && len(list.Items) == 0 {
		return absent
	}
	if o.Output.Given() && !o.Watch {
		if err := o.Output.Print(list, o.Factory.IO.Out); err != nil {
			return err
		}
		return absent
	}
	o.table = cli.NewGrowingTable(o.Factory.IO.Out)
	if err := o.print(list.Items); err != nil {
		return err
	}
	if absent != nil || !o.Watch {
		return absent
	}
	return events.Watch(ctx, c, selection, list.ResourceVersion, o.one)
}

// selection returns which events are asked for.
func (o *Options) selection(ctx context.Context) (*client.Client, events.Selection, error) {
	selection := events.Selection{Types: o.Types}
	if o.Since.Duration > 0 {
		selection.Since = o.Factory.Now().Add(-o.Since.Duration)
	}
	if o.AllNamespaces {
		c, err := o.Factory.Client()
		return c, selection, err
	}
	namespace, err := o.Factory.Namespace()
	if err != nil {
		return nil, selection, err
	}
	selection.Namespace = namespace
	c, targets, err := o.Chosen.Targets(ctx, o.Factory)
	if err != nil {
		return nil, selection, err
	}
	for i, t := range targets {
		if i > 0 && t.Namespace != selection.Namespace {
			return nil, selection, cli.UsageErrorf("VMs of the namespaces %s and %s cannot be named together",
				selection.Namespace, t.Namespace)
		}
		selection.Namespace = t.Namespace
		if !slices.Contains(selection.Names, t.Name) {
			selection.Names = append(selection.Names, t.Name)
		}
	}
	return c, selection, nil
}

// absent returns an error for each machine that was named, has no event and does not exist.
func (o *Options) absent(
	ctx context.Context, c *client.Client, s events.Selection, list []corev1.Event,
) error {
	if o.Chosen.Selector != "" {
		return nil
	}
	var errs []error
	for _, name := range s.Without(list) {
		if err := known(ctx, c, s.Namespace, name); err != nil {
			errs = append(errs, err)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// known returns an error where neither a VM nor an instance has the name, since then no event will come, either; nil
// for a user who may not read VMs.
func known(ctx context.Context, c *client.Client, namespace, name string) error {
	_, err := c.VM(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		if _, instance := c.VMI(ctx, namespace, name); instance == nil {
			return nil
		}
		return err
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// one prints an event as it comes.
func (o *Options) one(e *corev1.Event) error {
	if o.Output.Given() {
		return o.Output.Print(e, o.Factory.IO.Out)
	}
	o.table.Row(o.cells(e)...)
	return o.table.Flush()
}

func (o *Options) print(list []corev1.Event) error {
	if o.Output.Given() {
		for i := range list {
			if err := o.one(&list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		switch {
		case o.Watch:
		case o.Since.Duration > 0:
			fmt.Fprintf(o.Factory.IO.ErrOut, "No events found within %s.\n", o.Since.Duration)
		default:
			fmt.Fprintln(o.Factory.IO.ErrOut, "No events found; a cluster forgets them after an hour.")
		}
		return nil
	}
	if !o.Output.NoHeaders {
		titles := []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}
		if o.AllNamespaces {
			titles = append([]string{"NAMESPACE"}, titles...)
		}
		o.table.Row(titles...)
	}
	for i := range list {
		o.table.Row(o.cells(&list[i])...)
	}
	return o.table.Flush()
}

// short are kinds as kubectl takes them.
var short = map[string]string{
	"VirtualMachine": "vm", "VirtualMachineInstance": "vmi", "VirtualMachineInstanceMigration": "vmim",
	"VirtualMachineInstanceReplicaSet": "vmirs", "VirtualMachinePool": "vmpool", "KubeVirt": "kv",
}

func (o *Options) cells(e *corev1.Event) []string {
	kind := short[e.InvolvedObject.Kind]
	if kind == "" {
		kind = strings.ToLower(e.InvolvedObject.Kind)
	}
	seen := duration.HumanDuration(max(0, o.Factory.Now().Sub(events.When(e)).Truncate(time.Second)))
	if n := events.Count(e); n > 1 {
		seen = fmt.Sprintf("%s (x%d)", seen, n)
	}
	cells := []string{seen, e.Type, e.Reason, kind + "/" + e.InvolvedObject.Name, oneLine(e.Message)}
	if o.AllNamespaces {
		cells = append([]string{e.InvolvedObject.Namespace}, cells...)
	}
	return cells
}

// oneLine makes a message fit a row.
func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }
