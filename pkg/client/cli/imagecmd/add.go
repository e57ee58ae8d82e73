package imagecmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// AddOptions are the options of `virtctl image add`.
type AddOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	Ref     string
	Image   images.Image
	Source  images.Source
	// Signature is that of the source's file of checksums.
	Signature images.Signature
	// SigningKey is the key of the signature: a file, or an address with https.
	SigningKey string
}

// NewCmdAdd makes `virtctl image add`.
func NewCmdAdd(f *cli.Factory) *cobra.Command {
	o := &AddOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "add NAME/VERSION --url URL [--checksum HEX | --checksums URL] --size SIZE",
		Short: "Add an image to your own catalogue",
		Long: `Add an image to your own catalogue, $XDG_CONFIG_HOME/virtkit/images.yaml. It replaces one of the same name and
version, also of the program's catalogue; another architecture of it is added. Nothing is downloaded yet.

A file has a checksum. A container image (docker://IMAGE), which the cluster pulls, has none: its digest, if the
reference has one, is its checksum.

With --signing-key a file of checksums must be signed by an OpenPGP key. A key that is a file goes into the catalogue.
One that is an address is downloaded when an image is first pulled, and is trusted by its fingerprint, --signed-by.`,
		Example: cli.Examples(f.Program, `
			virtctl image add rocky/10 --size 10Gi --user rocky \
			  --url https://example.com/Rocky-10.qcow2 --checksums https://example.com/CHECKSUM
			virtctl image add rocky/10 --size 10Gi --url https://example.com/Rocky-10.qcow2 \
			  --checksums https://example.com/CHECKSUM --signature https://example.com/CHECKSUM.asc \
			  --signing-key KEY.asc
			virtctl image add fedora/42 --size 10Gi --user fedora --url docker://quay.io/containerdisks/fedora:42
			virtctl image add golden/2 --size 20Gi --url https://example.com/golden-2.img --checksum $SHA256`),
		Args:              cli.Args(1, 1, "an image: NAME/VERSION"),
		ValidArgsFunction: references(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Ref = args[0]
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Add(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Source.URL, "url", "", "`URL` of the file: raw, qcow2, vmdk, vhd or vhdx, also compressed; "+
		"or docker://IMAGE")
	flags.StringVar(&o.Source.ContainerPath, "container-path", "",
		"With docker://: `PATH` of the disk in the container image; the only file below /disk unless given")
	flags.StringVar(&o.Source.PullSecret, "pull-secret", "",
		"With docker://: `SECRET` of the claim's namespace by which the container image is pulled")
	flags.StringVar(&o.Source.Checksum, "checksum", "", "SHA-256 or SHA-512 checksum of the file, in `HEX`")
	flags.StringVar(&o.Source.Checksums, "checksums", "", "`URL` of a file of checksums, as SHA256SUMS")
	flags.StringVar(&o.Signature.Fingerprint, "signed-by", "",
		"Fingerprint, in `HEX`, of the OpenPGP key that the file of checksums must be signed with; the key in the "+
			"file of --signing-key unless given")
	flags.StringVar(&o.SigningKey, "signing-key", "",
		"`FILE` with that key, as text or binary, or its address with https")
	flags.StringVar(&o.Signature.URL, "signature", "",
		"`URL` of the signature; without it the file of checksums is itself a signed message")
	flags.StringVar(&o.Source.Arch, "arch", DefaultArch, "Architecture of the guest: amd64, arm64 or s390x")
	flags.StringVar(&o.Image.Size, "size", "", "Size of the claim that it is pulled to, such as 10Gi")
	flags.StringVar(&o.Image.Title, "title", "", "What people call it")
	flags.StringVar(&o.Image.User, "user", "", "Account that cloud-init makes in it by default")
	flags.StringVar(&o.Image.Instancetype, "default-instancetype", "", "Instance type of VMs that boot from it")
	flags.StringVar(&o.Image.Preference, "default-preference", "", "Preference of VMs that boot from it")
	cli.CompleteFlag(cmd, "arch", "amd64", "arm64", "s390x")
	o.Output.AddFlags(cmd)
	return cmd
}

// Add writes the user's catalogue.
func Add(ctx context.Context, o *AddOptions) error {
	name, version, err := images.ParseRef(o.Ref)
	if err != nil {
		return cli.UsageErrorf("%s", err)
	}
	switch {
	case version == "":
		return cli.UsageErrorf("%q has no version; write NAME/VERSION, such as %s/1", o.Ref, name)
	case o.Source.URL == "":
		return cli.UsageErrorf("where does it come from? Give the file's address with --url")
	case o.Image.Size == "":
		return cli.UsageErrorf("how large is its claim to be? Give --size, such as --size=10Gi")
	}
	if o.Signature != (images.Signature{}) || o.SigningKey != "" {
		if o.Source.Checksums == "" {
			return cli.UsageErrorf("--signed-by, --signing-key and --signature are about a file of checksums; give " +
				"its address with --checksums")
		}
		if err := o.readKey(); err != nil {
			return err
		}
		o.Source.Signature = &o.Signature
	}
	image := o.Image
	image.Name, image.Version, image.Sources = name, version, []images.Source{o.Source}
	if err := image.Check(); err != nil {
		return cli.UsageErrorf("%s", err)
	}
	path, err := ownFile(o.Factory)
	if err != nil {
		return err
	}
	done := "added to"
	err = images.ChangeFile(ctx, path, func(own *images.Catalogue) error {
		if o.put(&image, own) {
			done = "replaced in"
		}
		return nil
	})
	if err != nil {
		return err
	}
	if o.Output.Given() {
		out := images.Empty()
		out.Images = []images.Image{image}
		return o.Output.Print(out, o.Factory.IO.Out)
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "image %s %s %s\n", image.Ref(), done, path)
	return err
}

// readKey fills in the key of the signature.
func (o *AddOptions) readKey() error {
	switch {
	case o.SigningKey == "":
		return cli.UsageErrorf("which key signs the file of checksums? Give a file with it, or its address, with " +
			"--signing-key")
	case strings.Contains(o.SigningKey, "://"):
		o.Signature.Key = o.SigningKey
		return nil
	}
	file, err := os.Open(o.SigningKey)
	if err != nil {
		return cli.UsageErrorf("--signing-key: %s", err)
	}
	defer file.Close()
	const most = 4 << 20
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return fmt.Errorf("read the key: %w", err)
	}
	o.Signature.SigningKey, o.Signature.Fingerprint, err = images.SigningKey(data, o.Signature.Fingerprint)
	if err != nil {
		return cli.UsageErrorf("--signing-key: %s: %s", o.SigningKey, err)
	}
	return nil
}

// put adds the image to a catalogue, or replaces the one of the same name and version, whose sources for other
// architectures stay. It reports whether there was one.
func (o *AddOptions) put(image *images.Image, own *images.Catalogue) (replaced bool) {
	at := slices.IndexFunc(own.Images, func(i images.Image) bool { return i.Ref() == image.Ref() })
	if at < 0 {
		own.Images = append([]images.Image{*image}, own.Images...)
		return false
	}
	for _, s := range own.Images[at].Sources {
		if s.Arch != o.Source.Arch {
			image.Sources = append(image.Sources, s)
		}
	}
	own.Images[at] = *image
	return true
}
