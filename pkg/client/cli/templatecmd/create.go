package templatecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/vmtemplate"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// CreateOptions are the options of `virtctl template create`.
type CreateOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// Machine and its namespace are the VM's that the template is made of, Name is the template's.
	Machine, MachineNamespace, Name string
}

// NewCmdCreate makes the command.
func NewCmdCreate(f *cli.Factory) *cobra.Command {
	o := &CreateOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "create --vm-name VM",
		Short: "Ask for a template of a virtual machine",
		Long: `Make a VirtualMachineTemplateRequest, on which KubeVirt's add-on virt-template makes a VirtualMachineTemplate of
a VM and its disks. The cluster must have the add-on, and snapshots of VMs.`,
		Example: cli.Examples(f.Program, `
			virtctl template create --vm-name demo --name demo-template
			virtctl template create --vm-name demo --vm-namespace production`),
		Args: cli.Args(0, 0, "no arguments; the VM is given with --vm-name"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Machine == "" {
				return cli.UsageErrorf("--vm-name must be given")
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Create(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Machine, "vm-name", "", "`NAME` of the VM")
	flags.StringVar(&o.MachineNamespace, "vm-namespace", "", "`NAMESPACE` of the VM, unless it is the template's")
	flags.StringVar(&o.Name, "name", "", "`NAME` of the template; one is made unless it is given")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	completioncmd.Flag(cmd, "vm-name", completioncmd.VMs(f, -1))
	return cmd
}

// Create makes the request.
func Create(ctx context.Context, o *CreateOptions) error {
	ns, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	machineNamespace := o.MachineNamespace
	if machineNamespace == "" {
		machineNamespace = ns
	}
	request := vmtemplate.Request(ns, machineNamespace, o.Machine, o.Name)
	if o.DryRun == cli.DryRunClient {
		return o.Output.Manifest(request, o.Factory.IO.Out)
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if request, err = vmtemplate.Create(ctx, c, request, o.DryRun == cli.DryRunServer); err != nil {
		return err
	}
	return o.Output.Created(o.DryRun, "virtualmachinetemplaterequest."+vmtemplate.Group, request, o.Factory.IO.Out)
}
