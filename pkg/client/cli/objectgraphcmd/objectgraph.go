// Package objectgraphcmd is `virtctl objectgraph`: the objects that a virtual machine depends on.
package objectgraphcmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl objectgraph`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Name    string
	// Instance starts from the VMI instead of the VM.
	Instance        bool
	ExcludeOptional bool
	Selector        map[string]string
}

// NewCmdObjectGraph makes `virtctl objectgraph`.
func NewCmdObjectGraph(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	o.Output.Format = "json"
	cmd := &cobra.Command{
		Use:   "objectgraph NAME",
		Short: "List the objects that a virtual machine depends on, as a tree",
		Long: `List the objects that a VirtualMachine, or with --vmi a VirtualMachineInstance, depends on, as a tree: its pod,
claims, Secrets, ConfigMaps, networks, instance type and preference. Optional is what it can do without, such as the
instance type of which it has a copy. Each node has the label kubevirt.io/dependency-type: storage, network, compute or
config.`,
		Example: cli.Examples(f.Program, `
			virtctl objectgraph demo
			virtctl objectgraph demo --selector kubevirt.io/dependency-type=storage --exclude-optional
			virtctl objectgraph demo --vmi -o yaml`),
		Args: cli.Args(1, 1, "the name of a virtual machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Output.Validate(); err != nil {
				return err
			}
			o.Name = args[0]
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().
		BoolVar(&o.Instance, "vmi", false, "Start from the VirtualMachineInstance instead of the VirtualMachine")
	cmd.Flags().BoolVar(&o.ExcludeOptional, "exclude-optional", false, "Leave out what the machine can do without")
	cmd.Flags().StringToStringVar(&o.Selector, "selector", nil, "Labels (`KEY=VALUE,…`) of the nodes to show")
	o.Output.AddFlags(cmd)
	cmd.ValidArgsFunction = completioncmd.VMs(f, 1)
	values := []string{"storage", "network", "compute", "config"}
	for i := range values {
		values[i] = "kubevirt.io/dependency-type=" + values[i]
	}
	cli.CompleteFlag(cmd, "selector", slices.Clone(values)...)
	return cmd
}

// Run asks the server and prints.
func Run(ctx context.Context, o *Options) error {
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	target, err := o.Factory.Target(o.Name)
	if err != nil {
		return err
	}
	include := !o.ExcludeOptional
	options := v1.ObjectGraphOptions{IncludeOptionalNodes: &include}
	if len(o.Selector) > 0 {
		options.LabelSelector = &metav1.LabelSelector{MatchLabels: o.Selector}
	}
	resource, what := client.VMs, "VM"
	if o.Instance || target.Instance {
		resource, what = client.VMIs, "VMI"
	}
	node, err := c.ObjectGraph(ctx, resource, target.Namespace, target.Name, options)
	if err != nil {
		return fmt.Errorf("object graph of %s %s/%s: %w", what, target.Namespace, target.Name, err)
	}
	return o.Output.Print(node, o.Factory.IO.Out)
}
