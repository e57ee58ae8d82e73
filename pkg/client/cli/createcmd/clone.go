package createcmd

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// CloneOptions are the options of `virtctl create clone`.
type CloneOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	Apply   bool
	Name    string
	// Namespace is that of --namespace, which the manifest has only then.
	Namespace              string
	SourceType, TargetType string
	// TargetNamespace is where the copy is made; empty is beside the source.
	TargetNamespace string
	// MACs are INTERFACE:MAC, the MAC with dashes.
	MACs []string

	clone.Options
}

// NewCmdClone makes `virtctl create clone`.
func NewCmdClone(f *cli.Factory) *cobra.Command {
	o := &CloneOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "clone",
		Short: "Create a manifest of a clone of a virtual machine or of a snapshot",
		Long: `Print the manifest of a VirtualMachineClone, which makes a VM of a VM or of a snapshot, or with --apply create it
in the cluster. "virtctl clone" does the same in one step, and waits.`,
		Example: cli.Examples(f.Program, `
			virtctl create clone --source-name demo --target-name demo-copy
			virtctl create clone --source-name before-upgrade --source-type snapshot --target-name demo-copy
			virtctl create clone --source-name demo --label-filter '*' --label-filter '!some/key'
			virtctl create clone --source-name demo --template-label-filter '*' --template-label-filter '!some/key'
			virtctl create clone --source-name demo --new-mac-address default:02-00-00-00-00-17
			virtctl create clone --source-name demo -n team-a --target-namespace team-b
			virtctl create clone --source-name demo | kubectl create -f -`),
		Args: cli.Args(0, 0, "no arguments; the source is given with --source-name"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			return RunClone(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Name, "name", "", "`NAME` of the clone; a random one when not given")
	flags.StringVar(&o.Source, "source-name", "", "`NAME` of the VM or snapshot")
	flags.StringVar(&o.Target, "target-name", "", "`NAME` of the new VM; a random one when not given")
	flags.StringVar(&o.TargetNamespace, "target-namespace", "",
		"`NAMESPACE` of the new VM, when it is not that of the source")
	flags.StringVar(&o.SourceType, "source-type", "vm", "`TYPE` of the source: vm, snapshot")
	flags.StringVar(&o.TargetType, "target-type", "vm", "`TYPE` of the target: vm")
	flags.StringArrayVar(&o.LabelFilters, "label-filter", nil, "`FILTER` of labels (can be repeated)")
	flags.StringArrayVar(&o.AnnotationFilters, "annotation-filter", nil, "`FILTER` of annotations (can be repeated)")
	flags.StringArrayVar(&o.TemplateLabelFilters, "template-label-filter", nil,
		"`FILTER` of labels of the VM's template (can be repeated)")
	flags.StringArrayVar(&o.TemplateAnnotationFilters, "template-annotation-filter", nil,
		"`FILTER` of annotations of the VM's template (can be repeated)")
	flags.StringArrayVar(&o.MACs, "new-mac-address", nil,
		"`INTERFACE:MAC` of the new VM, the MAC with dashes (can be repeated)")
	flags.StringVar(&o.Serial, "new-smbios-serial", "", "SMBIOS `SERIAL` number of the new VM")
	flags.StringSliceVar(&o.Keep, "keep", nil, clone.KeepUsage)
	flags.BoolVar(&o.Apply, "apply", false, "Create it in the cluster instead of printing its manifest")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	flags.SortFlags = false
	cli.CompleteFlag(cmd, "source-type", "vm", "snapshot")
	cli.CompleteFlag(cmd, "target-type", "vm")
	cli.CompleteFlag(cmd, "keep", clones.Parts...)
	completioncmd.Flag(cmd, "source-name", completioncmd.VMs(f, -1))
	completioncmd.Flag(cmd, "target-namespace", completioncmd.Namespaces(f))
	return cmd
}

func (o *CloneOptions) complete(cmd *cobra.Command) error {
	if o.Source == "" {
		return cli.UsageErrorf("--source-name is missing; give the name of a VM or snapshot")
	}
	switch o.SourceType {
	case "", "vm", "VM", "VirtualMachine", "virtualmachine":
	case "snapshot", "VirtualMachineSnapshot", "vmsnapshot", "VMSnapshot":
		o.FromSnapshot = true
	default:
		return cli.UsageErrorf("--source-type: %q is not one of vm, snapshot", o.SourceType)
	}
	switch o.TargetType {
	case "", "vm", "VM", "VirtualMachine", "virtualmachine":
	default:
		return cli.UsageErrorf("--target-type: %q is not vm", o.TargetType)
	}
	if problems := content.IsDNS1123Label(o.TargetNamespace); o.TargetNamespace != "" && len(problems) > 0 {
		return cli.UsageErrorf("--target-namespace: %q is not a namespace: %s", o.TargetNamespace,
			strings.Join(problems, "; "))
	}
	for _, text := range o.MACs {
		name, address, _ := strings.Cut(text, ":")
		if name == "" || address == "" || strings.Contains(address, ":") {
			return cli.UsageErrorf("--new-mac-address: %q is not INTERFACE:MAC, the MAC with dashes", text)
		}
		if o.Options.MACs == nil {
			o.Options.MACs = map[string]string{}
		}
		o.Options.MACs[name] = address
	}
	if trouble := o.Trouble(); trouble != "" {
		return cli.UsageErrorf("--keep: %s", trouble)
	}
	if o.Name == "" {
		o.Name = "clone-" + o.Factory.RandomName(5)
	}
	if f := cmd.Flags().Lookup("namespace"); f != nil && f.Changed {
		o.Namespace = f.Value.String()
	}
	o.Apply = o.Apply || o.DryRun == cli.DryRunServer // asking the server is what an apply does
	return o.Output.Validate()
}

// RunClone prints or applies the clone.
func RunClone(ctx context.Context, o *CloneOptions) error {
	own := o.Namespace
	if o.TargetNamespace != "" { // the manifest must say where the source is
		var err error
		if o.SourceNamespace, err = o.Factory.Namespace(); err != nil {
			return err
		}
		own = o.TargetNamespace
	}
	if o.Apply && o.DryRun != cli.DryRunClient {
		c, namespace, err := o.Factory.Scope()
		if err != nil {
			return err
		}
		object, err := clone.Create(ctx, c, clone.New(cmp.Or(o.TargetNamespace, namespace), o.Name, o.Options),
			o.DryRun == cli.DryRunServer)
		if err != nil {
			return err
		}
		return o.Output.Created(o.DryRun, "virtualmachineclone.clone.kubevirt.io", object, o.Factory.IO.Out)
	}
	return o.Output.Manifest(clone.New(own, o.Name, o.Options), o.Factory.IO.Out)
}
