package imagecmd

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// NewCmdImport makes `virtctl image import`.
func NewCmdImport(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "import FILE NAME/VERSION --size SIZE",
		Short: "Bring a file with a disk to a namespace, as an image",
		Long: `Bring a file with a disk to a claim of a namespace, as an image of which "create vm --image" makes VMs. It is raw, ISO,
qcow2, vmdk, vhd or vhdx, also compressed with gzip, xz or zstd.

With docker://IMAGE instead of FILE it is the disk of a container image (a container disk, as KubeVirt's volumes have
it), which the cluster pulls: nothing goes by way of this machine.`,
		Example: cli.Examples(f.Program, `
			virtctl image import golden.qcow2 golden/2 --size 20Gi --user admin --default-preference fedora
			virtctl image import docker://quay.io/containerdisks/fedora:42 fedora/42 --size 10Gi --user fedora`),
		Args:              cli.Args(2, 2, "a file and an image: FILE NAME/VERSION"),
		ValidArgsFunction: completeImport(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.File, o.Ref, o.given = args[0], args[1], givenOf(cmd)
			if err := o.validate(); err != nil {
				return err
			}
			return Import(cmd.Context(), o)
		},
	}
	o.addFlags(cmd, ", for the disk and what its file system takes")
	flags := cmd.Flags()
	flags.StringVar(&o.Disk.Path, "container-path", "",
		"With docker://: `PATH` of the disk in the container image; the only file below /disk unless given")
	flags.StringVar(&o.Disk.PullSecret, "pull-secret", "",
		"With docker://: `SECRET` of the namespace by which the container image is pulled")
	flags.StringVar(&o.Image.User, "user", "", "Account that cloud-init makes in it by default")
	flags.StringVar(&o.Image.Instancetype, "default-instancetype", "", "Instance type of VMs that boot from it")
	flags.StringVar(&o.Image.Preference, "default-preference", "", "Preference of VMs that boot from it")
	return cmd
}

// completeImport completes a file, and after it the references that the user's catalogue and the program's have.
func completeImport(f *cli.Factory) cobra.CompletionFunc {
	known := references(f)
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return nil, cobra.ShellCompDirectiveDefault
		case 1:
			return known(cmd, nil, word)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// Import uploads a file, or has the cluster take the disk of a container image.
func Import(ctx context.Context, o *Options) error {
	if image, ok := strings.CutPrefix(o.File, images.ContainerScheme); ok {
		o.Disk.Image = image
		if err := o.Disk.Check(); err != nil {
			return cli.UsageErrorf("%s: %s", o.File, err)
		}
	} else if o.Disk.Path != "" || o.Disk.PullSecret != "" {
		return cli.UsageErrorf("--container-path and --pull-secret are about a container image; write it as %sIMAGE",
			images.ContainerScheme)
	}
	name, version, _ := images.ParseRef(o.Ref) // validate has asked
	if version == "" {
		return cli.UsageErrorf("%q has no version; write NAME/VERSION, such as %s/1", o.Ref, name)
	}
	if o.Claim.Size == "" {
		return cli.UsageErrorf("how large is the claim to be? Give --size, such as --size=10Gi")
	}
	o.Image.Name, o.Image.Version, o.Image.Size = name, version, o.Claim.Size
	if err := o.Image.CheckLabels(); err != nil {
		return cli.UsageErrorf("%s", err)
	}
	t, c, there, err := o.target(ctx)
	if err != nil {
		return err
	}
	if there {
		return nil
	}
	if o.Disk.Image != "" {
		err = o.take(ctx, c, t)
	} else {
		err = o.send(ctx, c, t, o.File, filepath.Base(o.File))
	}
	if err != nil {
		return err
	}
	return o.report(ctx, c, t)
}

// take has the cluster take the disk of the container image.
func (o *Options) take(ctx context.Context, c *client.Client, t cli.Target) error {
	o.Claim.Annotations = map[string]string{uploads.AnnotationImage: o.Image.Ref()}
	cancel := "; `" + o.Factory.Program + " image-upload pvc " + t.Name + o.Factory.InNamespace(t.Namespace) +
		" --cancel` ends it"
	_, err := o.Send(ctx, o.Factory, c, "take "+o.Image.Ref(), cancel, upload.Options{
		Namespace: t.Namespace, Claim: t.Name, ContainerDisk: &o.Disk, Create: &o.Claim, Labels: o.Image.Labels(),
	})
	return err
}
