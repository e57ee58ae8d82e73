package imagecmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// RemoveOptions are the options of `virtctl image rm`.
type RemoveOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	Ref     string
	Own     bool
	Yes     bool
}

// NewCmdRemove makes `virtctl image rm`.
func NewCmdRemove(f *cli.Factory) *cobra.Command {
	o := &RemoveOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:     "rm IMAGE",
		Aliases: []string{"remove"},
		Short:   "Delete an image of a namespace, or remove one from your own catalogue",
		Long: `Delete an image of a namespace: its claim, and with it the DataSource that was made of it where the cluster has CDI. VMs
that were made of it have disks of their own and keep them; while one of these has no volume yet, the image is not
deleted. A VM that boots from the claim itself loses its disk when it stops. It asks first; where nobody can be asked,
--yes must be given.

With --own it is removed from your own catalogue, and no claim is deleted.`,
		Example: cli.Examples(f.Program, `
			virtctl image rm debian/12
			virtctl image rm golden/1 --own`),
		Args:              cli.Args(1, 1, "an image: NAME or NAME/VERSION"),
		ValidArgsFunction: pulled(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Ref = args[0]
			if _, _, err := images.ParseRef(o.Ref); err != nil {
				return cli.UsageErrorf("%s", err)
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			if o.Own {
				return removeOwn(cmd.Context(), o)
			}
			return Remove(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Own, "own", false, "Remove it from your own catalogue instead")
	flags.BoolVarP(&o.Yes, "yes", "y", false, "Do not ask")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

// Remove deletes the claim.
func Remove(ctx context.Context, o *RemoveOptions) error {
	f := o.Factory
	c, namespace, err := f.Scope()
	if err != nil {
		return err
	}
	list, err := images.List(ctx, c, namespace)
	if err != nil {
		return err
	}
	image, err := list.OnClaims().FindAlias(o.Ref)
	if err != nil {
		image, err = list.FindAlias(o.Ref)
	}
	if err != nil {
		return fmt.Errorf("%w in namespace %s", err, namespace)
	}
	if image.Claim == "" {
		return fmt.Errorf("image %s is DataSource %s/%s, which no pull has made, and it is left to whoever has; "+
			"`kubectl delete datasource %s -n %s` deletes it, until a DataImportCron, if it is of one, makes it again",
			image.Image, namespace, image.DataSource, image.DataSource, namespace)
	}
	if err := images.Unneeded(ctx, c, namespace, image.Name); err != nil {
		return err
	}
	if o.DryRun == cli.DryRunNone && !o.Yes {
		if !f.IO.CanAsk() {
			return cli.UsageErrorf("this deletes claim %s/%s, which has image %s; add --yes to say that you mean it",
				namespace, image.Name, image.Image)
		}
		question := fmt.Sprintf("Delete claim %s of namespace %s, which has image %s?", image.Name, namespace,
			image.Image)
		if err := cli.MustConfirm(ctx, f.IO, question); err != nil {
			return err
		}
	}
	if o.DryRun != cli.DryRunClient {
		err := images.Remove(ctx, c, namespace, image.Name, image.UID, o.DryRun == cli.DryRunServer)
		if err != nil {
			return err
		}
	}
	if o.Output.Given() {
		return o.Output.Print(image, f.IO.Out)
	}
	_, err = fmt.Fprintf(f.IO.Out, "image %s deleted: claim %s of namespace %s%s\n", image.Image, image.Name, namespace,
		o.DryRun.Suffix())
	return err
}

// removeOwn takes the image out of the user's catalogue.
func removeOwn(ctx context.Context, o *RemoveOptions) error {
	path, err := ownFile(o.Factory)
	if err != nil {
		return err
	}
	own, err := images.ReadFile(path)
	if err != nil {
		return err
	}
	image, err := own.Find(o.Ref)
	if err != nil {
		return fmt.Errorf("image %s %w in %s", o.Ref, action.ErrNotFound, path)
	}
	gone, ref := images.Empty(), image.Ref()
	gone.Images = []images.Image{*image}
	if o.DryRun == cli.DryRunNone {
		err := images.ChangeFile(ctx, path, func(own *images.Catalogue) error {
			own.Images = slices.DeleteFunc(own.Images, func(i images.Image) bool { return i.Ref() == ref })
			return nil
		})
		if err != nil {
			return err
		}
	}
	if o.Output.Given() {
		return o.Output.Print(gone, o.Factory.IO.Out)
	}
	dry := cli.DryRunNone
	if o.DryRun != cli.DryRunNone {
		dry = cli.DryRunClient // no server is asked
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "image %s removed from %s%s\n", ref, path, dry.Suffix())
	return err
}
