package volumecmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// ResizeOptions are the options of `virtctl volume resize`.
type ResizeOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// Machine and Volume are the arguments that name them.
	Machine, Volume string
	Size            resource.Quantity

	cli.Waiting
}

// NewCmdVolume makes `virtctl volume`.
func NewCmdVolume(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "volume",
		Short: "Resize and migrate volumes of virtual machines",
		Long: `Resize volumes of virtual machines, and migrate them to other storage. "addvolume" and "removevolume"
plug volumes in and out, as in KubeVirt's virtctl.`,
	})
	cmd.AddCommand(NewCmdResize(f), NewCmdMigrate(f))
	return cmd
}

// NewCmdResize makes `virtctl volume resize`.
func NewCmdResize(f *cli.Factory) *cobra.Command {
	o := &ResizeOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "resize VM VOLUME SIZE",
		Short: "Make a volume of a virtual machine larger",
		Long: `Make a volume of a virtual machine larger: its PersistentVolumeClaim, and the disk of the guest, which
may run. The claim's StorageClass must allow expansion. A volume never shrinks, so this cannot be undone.

The guest sees a larger disk. Its partition and file system grow by its own means: cloud-init's growpart at the next
boot, or growpart and resize2fs (or xfs_growfs) in a guest that runs.`,
		Example: cli.Examples(f.Program, `
			virtctl volume resize demo data 20Gi
			virtctl volume resize demo data 20Gi --wait
			virtctl volume resize demo data 20Gi --dry-run`),
		Args:              cli.Args(3, 3, "the name of a VM, of a volume, and a size"),
		ValidArgsFunction: completioncmd.MachineVolumes(f),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Machine, o.Volume = args[0], args[1]
			if o.Size, err = volume.ParseSize(args[2]); err != nil {
				return cli.UsageErrorf("%s", err)
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			if err := o.CheckWait(o.DryRun); err != nil {
				return err
			}
			return RunResize(cmd.Context(), o)
		},
	}
	o.AddFlags(cmd, "the guest's disk has the size", 5*time.Minute)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

// RunResize requests the size, and with Wait waits until the guest's disk has it.
func RunResize(ctx context.Context, o *ResizeOptions) error {
	c, t, err := o.Factory.Machine(o.Machine)
	if err != nil {
		return err
	}
	r, err := volume.Look(ctx, c, t.Namespace, t.Name, o.Volume, t.Instance)
	if err == nil {
		err = r.Check(o.Size)
	}
	if err != nil {
		return err
	}
	claim, err := o.request(ctx, c, r)
	if err != nil {
		o.Factory.IO.Requested(err, false, "the resizing of claim %s/%s", t.Namespace, r.Claim.Name)
		return err
	}
	if err := o.report(r, t); err != nil {
		return err
	}
	if o.Wait {
		if err := o.wait(ctx, c, r, t); err != nil {
			o.Factory.IO.Requested(err, true, "the resizing of claim %s/%s", t.Namespace, r.Claim.Name)
			return err
		}
	}
	if !o.Output.Given() {
		return nil
	}
	if claim == nil || o.Wait {
		if claim, err = volume.ReadClaim(ctx, c, t.Namespace, r.Claim.Name); err != nil {
			return err
		}
	}
	return o.Output.Print(claim, o.Factory.IO.Out)
}

// request sends the request, unless there is nothing to change; it returns nil then.
func (o *ResizeOptions) request(
	ctx context.Context, c *client.Client, r *volume.Resizable,
) (*unstructured.Unstructured, error) {
	if _, wants := volume.Sizes(r.Claim); o.DryRun == cli.DryRunClient || wants.Cmp(o.Size) == 0 {
		return nil, nil
	}
	return volume.Resize(ctx, c, r, o.Size, o.DryRun == cli.DryRunServer)
}

// report says what was requested, and what is to be known of it.
func (o *ResizeOptions) report(r *volume.Resizable, t cli.Target) error {
	for _, note := range r.Notes() {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s\n", note)
	}
	if o.Output.Given() {
		return nil
	}
	has, wants := volume.Sizes(r.Claim)
	said := fmt.Sprintf("claim %s grows from %s to %s", r.Claim.Name, &has, &o.Size)
	switch {
	case has.Cmp(o.Size) == 0:
		said = fmt.Sprintf("claim %s has %s", r.Claim.Name, &o.Size)
	case wants.Cmp(o.Size) == 0:
		said = fmt.Sprintf("claim %s is growing from %s to %s already", r.Claim.Name, &has, &o.Size)
	}
	_, err := fmt.Fprintf(o.Factory.IO.Out, "volume %s of %s: %s%s\n", o.Volume, t.Name, said, o.DryRun.Suffix())
	return err
}

func (o *ResizeOptions) wait(ctx context.Context, c *client.Client, r *volume.Resizable, t cli.Target) error {
	var grown volume.Grown
	err := o.Until(ctx, o.Factory.IO, "waiting for volume "+o.Volume, func(ctx context.Context) (err error) {
		grown, err = volume.AwaitGrown(ctx, c, r, t.Name, o.Size)
		return err
	})
	if err != nil || o.Output.Given() {
		return err
	}
	said := fmt.Sprintf("claim %s has %s", r.Claim.Name, &grown.Claim)
	switch {
	case grown.AtStart:
		said = fmt.Sprintf("the storage has %s, and the disk grows when %s starts", &o.Size, t.Name)
	case grown.Disk > 0:
		said = fmt.Sprintf("the guest's disk has %s", resource.NewQuantity(grown.Disk, resource.BinarySI))
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "volume %s of %s: %s\n", o.Volume, t.Name, said)
	return err
}
