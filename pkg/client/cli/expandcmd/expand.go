// Package expandcmd is `virtctl expand`: a VirtualMachine with its instance type and preference written out.
package expandcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl expand`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	// VM is one of the cluster's; File has one, "-" is stdin. One of them is set.
	VM, File string
}

// NewCmdExpand makes `virtctl expand`.
func NewCmdExpand(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	o.Output.Format = "yaml"
	cmd := &cobra.Command{
		Use:   "expand (--vm NAME | --file FILE)",
		Short: "Show a virtual machine with its instance type and preference written out",
		Long: `Show a VirtualMachine with what its instance type and preference make of it written into its template, as the guest
is or would be run. The VM is one of the cluster's or one in a file, which need not exist.`,
		Example: cli.Examples(f.Program, `
			virtctl expand --vm demo
			virtctl expand --file demo.yaml -o json
			virtctl create vm --instancetype u1.small --pvc disk | virtctl expand --file -`),
		Args: cli.Args(0, 0, "no arguments; the VM is given with --vm or --file"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Output.Validate(); err != nil {
				return err
			}
			if (o.VM == "") == (o.File == "") {
				return cli.UsageErrorf("exactly one of --vm and --file must be given")
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.VM, "vm", "", "`NAME` of a VirtualMachine of the cluster")
	cmd.Flags().StringVarP(&o.File, "file", "f", "", "`FILE` with a VirtualMachine, YAML or JSON; - is stdin")
	o.Output.AddFlags(cmd)
	completioncmd.Flag(cmd, "vm", completioncmd.VMs(f, -1))
	return cmd
}

// Run asks the server and prints.
func Run(ctx context.Context, o *Options) error {
	var body []byte
	if o.File != "" {
		var err error
		if body, err = read(o.Factory.IO.In, o.File); err != nil {
			return err
		}
	}
	c, ns, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	var vm *v1.VirtualMachine
	if body == nil {
		if vm, err = c.Expanded(ctx, ns, o.VM); err != nil {
			return fmt.Errorf("expand VM %s/%s: %w", ns, o.VM, err)
		}
		return o.Output.Print(vm, o.Factory.IO.Out)
	}
	if vm, err = c.Expand(ctx, ns, body); err != nil {
		return fmt.Errorf("expand the VM in %s: %w", o.File, err)
	}
	manifest, err := create.Manifest(vm)
	if err != nil {
		return err
	}
	return o.Output.Print(manifest, o.Factory.IO.Out)
}

// read gives a file's VirtualMachine as JSON.
func read(stdin io.Reader, path string) ([]byte, error) {
	data, err := cli.ReadFile(stdin, "--file", path, " and is no VirtualMachine")
	if err != nil {
		return nil, err
	}
	body, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, cli.UsageErrorf("--file: %s is neither YAML nor JSON: %s", path, err)
	}
	return body, nil
}
