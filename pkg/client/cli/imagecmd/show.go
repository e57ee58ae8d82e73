package imagecmd

import (
	"context"
	"errors"

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

It is printed as a catalogue of one image: what ` + "`image add`" + ` writes, and what a ConfigMap may have. An image that
no catalogue has, as one of a DataSource, is printed as "image list" prints it.`,
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
	image, err := Find(ctx, o.Factory, o.Ref)
	if err != nil {
		if there := o.there(ctx, err); there != nil {
			return o.Output.Manifest(there, o.Factory.IO.Out)
		}
		return err
	}
	out := images.Empty()
	out.Images = []images.Image{*image}
	return o.Output.Manifest(out, o.Factory.IO.Out)
}

// there returns the image of the namespace that no catalogue has, as the error says; nil for none, or if the cluster
// does not say.
func (o *ShowOptions) there(ctx context.Context, err error) *images.Pulled {
	var missing *images.NotFoundError
	if !errors.As(err, &missing) {
		return nil
	}
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return nil
	}
	list, err := images.List(ctx, c, namespace)
	if err != nil {
		return nil
	}
	image, err := list.Find(o.Ref)
	if err != nil {
		return nil
	}
	return image
}
