package templatecmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/vmtemplate"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// ConvertOptions are the options of `virtctl template convert`.
type ConvertOptions struct {
	Factory *cli.Factory
	Output  *cli.Output

	source
}

// NewCmdConvert makes the command.
func NewCmdConvert(f *cli.Factory) *cobra.Command {
	o := &ConvertOptions{Factory: f, Output: cli.NewOutput()}
	o.Output.Format = "yaml"
	cmd := &cobra.Command{
		Use:   "convert (NAME | --file FILE)",
		Short: "Make a VirtualMachineTemplate of a Template of OpenShift's",
		Long: `Print the VirtualMachineTemplate that says the same as a Template of OpenShift's. The Template must have one
object, a VirtualMachine.`,
		Example: cli.Examples(f.Program, `
			virtctl template convert -f rhel.yaml > rhel-vmt.yaml
			virtctl template convert -f rhel.yaml | virtctl template process -f - -p NAME=web`),
		Args: cli.Args(0, 1, "the name of a Template, or none with --file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.take(args); err != nil {
				return err
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Convert(cmd.Context(), o)
		},
	}
	o.addFlags(cmd, "a Template of OpenShift's", completioncmd.OpenShiftTemplates(f))
	o.Output.AddFlags(cmd)
	return cmd
}

// Convert prints the template.
func Convert(ctx context.Context, o *ConvertOptions) error {
	text, err := o.read(ctx, o.Factory, vmtemplate.GetOpenShift)
	if err != nil {
		return err
	}
	object, err := vmtemplate.Convert(text)
	if err != nil {
		return fmt.Errorf("template %s: %w", o.where(), err)
	}
	return o.Output.Print(object, o.Factory.IO.Out)
}
