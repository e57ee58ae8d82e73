package imagecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// ShowOptions are the options of `virtctl image show`.
type ShowOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	Ref     string
}

// NewCmdShow makes `virtctl image show`.
func NewCmdShow(f *cli.Factory) *cobra.Command {
	o := &ShowOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "show IMAGE",
		Short: "Show where an image of the catalogue comes from",
		Long: `Show an image of the catalogue: where it comes from, how it is verified, and what VMs of it get.

It is printed as a catalogue of one image: what ` + "`image add`" + ` writes, and what a ConfigMap may have.`,
		Example: cli.Examples(f.Program, `
			virtctl image show debian/13
			virtctl image show ubuntu -o json`),
		Args:              cli.Args(1, 1, "an image: NAME or NAME/VERSION"),
		ValidArgsFunction: references(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Ref = args[0]
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Show(cmd.Context(), o)
		},
	}
	o.Output.AddFlags(cmd)
	return cmd
}

// Show prints the image.
func Show(ctx context.Context, o *ShowOptions) error {
	image, err := find(ctx, o.Factory, o.Ref)
	if err != nil {
		return err
	}
	out := images.Empty()
	out.Images = []images.Image{*image}
	return o.Output.Manifest(out, o.Factory.IO.Out)
}
