package imagecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/imagefile"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// DefaultArch is the architecture of most clusters.
const DefaultArch = "amd64"

// Options of `virtctl image pull` and `virtctl image import`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output

	imagefile.Options
	Ref   string
	File  string
	Arch  string
	Name  string
	Keep  bool
	Image images.Image
	// Disk is the container image to import; its Image is empty when a file is.
	Disk uploads.ContainerDisk
	// note is told what the user should know; nil prints it.
	note func(string)
	// given are the flags that were given of those that say how the claim is to be.
	given []string
}

// givenOf returns which flags were given that mean nothing for an image that is there.
func givenOf(cmd *cobra.Command) []string {
	var out []string
	for _, name := range []string{
		"name", "size", "storage-class", "access-mode", "block-volume", "user", "default-instancetype",
		"default-preference", "arch",
	} {
		if cmd.Flags().Changed(name) {
			out = append(out, "--"+name)
		}
	}
	return out
}

// NewCmdPull makes `virtctl image pull`.
func NewCmdPull(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Bring an image of the catalogue to a namespace",
		Long: `Bring an image of the catalogue to a claim of a namespace: it is downloaded to this machine, its published checksum
is verified, and it is uploaded through the API server, as image-upload does. A container image (docker://IMAGE) is
pulled by the cluster, and nothing goes by way of this machine.

What was cut off goes on where it was when the command is repeated. The downloaded file is removed at the end unless
--keep is given.`,
		Example: cli.Examples(f.Program, `
			virtctl image pull debian/13
			virtctl image pull ubuntu --size 20Gi --storage-class fast`),
		Args:              cli.Args(1, 1, "an image: NAME or NAME/VERSION"),
		ValidArgsFunction: references(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Ref, o.given = args[0], givenOf(cmd)
			if err := o.validate(); err != nil {
				return err
			}
			return Pull(cmd.Context(), o)
		},
	}
	o.addFlags(cmd, "; the catalogue's unless given")
	cmd.Flags().StringVar(&o.Arch, "arch", DefaultArch, "Architecture of the guest: amd64, arm64 or s390x")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "Keep the downloaded file, for other namespaces")
	cli.CompleteFlag(cmd, "arch", "amd64", "arm64", "s390x")
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command, size string) {
	cmd.Flags().StringVar(&o.Name, "name", "", "Name of the claim; NAME-VERSION unless given")
	o.AddFlags(cmd, imagefile.Help{Claim: "the claim", Size: size})
	o.Output.AddFlags(cmd)
}

func (o *Options) validate() error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if err := o.ValidateAccessMode(); err != nil {
		return err
	}
	if err := o.ValidateSize(); err != nil {
		return err
	}
	if _, _, err := images.ParseRef(o.Ref); err != nil {
		return cli.UsageErrorf("%s", err)
	}
	o.Claim.VolumeMode = "Filesystem"
	if o.Block {
		o.Claim.VolumeMode = "Block"
	}
	return nil
}

// Pull downloads and uploads.
func Pull(ctx context.Context, o *Options) error {
	image, err := Find(ctx, o.Factory, o.Ref)
	if err != nil {
		return err
	}
	o.Image = *image
	if _, err := o.Image.Source(o.Arch); err != nil {
		return err
	}
	t, c, there, err := o.target(ctx)
	if err != nil || there {
		return err
	}
	if err := o.bring(ctx, c, t); err != nil {
		return err
	}
	return o.report(ctx, c, t)
}

// offer offers the image as a DataSource where the cluster has CDI. The image is there without it, too, so that it
// returns no error, and says what keeps it.
func (o *Options) offer(ctx context.Context, c *client.Client, namespace, claim string) (name string) {
	name, err := images.Offer(ctx, c, namespace, claim)
	if err != nil {
		o.say("image %s has no DataSource: %s", o.Image.Ref(), cli.Explain(err, o.Factory.Connection()))
	}
	return name
}

// PullTo brings an image of the catalogue to a claim of a namespace, as `image pull` does without flags. watcher is
// told how far it is, and note what the user should know.
func PullTo(
	ctx context.Context, f *cli.Factory, c *client.Client, namespace string, image *images.Image,
	watcher imagefile.Watcher, note func(string),
) error {
	o := &Options{Factory: f.Silent(), Image: *image, note: note}
	o.Watcher = watcher
	return o.pullTo(ctx, c, namespace)
}

// PullNeeded brings an image of the catalogue to a claim of a namespace for a command that needs it, as PullTo does,
// and tells the terminal how far it is.
func PullNeeded(
	ctx context.Context, f *cli.Factory, c *client.Client, namespace string, image *images.Image,
) error {
	return (&Options{Factory: f, Image: *image}).pullTo(ctx, c, namespace)
}

func (o *Options) pullTo(ctx context.Context, c *client.Client, namespace string) error {
	o.Arch, o.WaitSeconds = DefaultArch, imagefile.DefaultWaitSeconds
	o.Claim.AccessMode, o.Claim.VolumeMode = imagefile.DefaultAccessMode, "Filesystem"
	t := cli.Target{Namespace: namespace, Name: ClaimName(&o.Image)}
	have, err := o.have(ctx, c, namespace)
	if err != nil {
		return err
	}
	if have != nil {
		return fmt.Errorf("image %s is there already: claim %s/%s", have.Image, namespace, have.Name)
	}
	if err := o.complete(ctx, c, t); err != nil {
		return err
	}
	if err := o.bring(ctx, c, t); err != nil {
		return err
	}
	o.offer(ctx, c, namespace, t.Name)
	return nil
}

// ClaimName returns the name of the claim that an image is pulled to.
func ClaimName(image *images.Image) string {
	return strings.ReplaceAll(image.Name+"-"+image.Version, ".", "-")
}

// bring downloads the image and uploads it, or has the cluster take the disk of a container image.
func (o *Options) bring(ctx context.Context, c *client.Client, t cli.Target) error {
	source, err := o.Image.Source(o.Arch)
	if err != nil {
		return err
	}
	if disk, ok := source.ContainerDisk(); ok {
		if o.Keep {
			o.say("--keep has no effect: the cluster pulls %s itself", source.URL)
		}
		o.Disk = disk
		return o.take(ctx, c, t)
	}
	dir, err := cacheDir(o.Factory)
	if err != nil {
		return err
	}
	fetcher := &images.Fetcher{HTTP: http.DefaultClient, Dir: dir}
	file, err := o.Fetch(ctx, o.Factory, fetcher, "download "+o.Image.Ref(), source)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			o.Factory.IO.Interrupted(err, "the download goes on where it was when the command is repeated")
		}
		return err
	}
	if err := o.send(ctx, c, t, file.Path, filepath.Base(source.URL)); err != nil {
		return err
	}
	if !o.Keep {
		if err := os.Remove(file.Path); err != nil {
			return fmt.Errorf("remove the downloaded file: %w", err)
		}
	}
	return nil
}

// target returns the claim to be made. When the namespace has the image already, it prints that, and there is true.
func (o *Options) target(ctx context.Context) (t cli.Target, c *client.Client, there bool, err error) {
	if o.Name == "" {
		o.Name = ClaimName(&o.Image)
	}
	if t, err = o.Factory.Target(o.Name); err != nil {
		return t, nil, false, err
	}
	if c, err = o.Factory.Client(); err != nil {
		return t, nil, false, err
	}
	have, err := o.have(ctx, c, t.Namespace)
	switch {
	case err != nil:
		return t, nil, false, err
	case have == nil:
		return t, c, false, o.complete(ctx, c, t)
	case len(o.given) > 0:
		o.say("image %s is there already, so %s has no effect; `%s image rm %s%s` deletes it", have.Image,
			strings.Join(o.given, ", "), o.Factory.Program, have.Image, o.Factory.InNamespace(t.Namespace))
	}
	have.DataSource = cmp.Or(o.offer(ctx, c, t.Namespace, have.Name), have.DataSource)
	if o.Output.Given() {
		return t, c, true, o.Output.Print(have, o.Factory.IO.Out)
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "image %s is there already: claim %s\n", have.Image, have.Name)
	return t, c, true, err
}

// have returns the image of the namespace, nil when that has none which is ready.
func (o *Options) have(ctx context.Context, c *client.Client, namespace string) (*images.Pulled, error) {
	list, err := images.List(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	if have, err := list.Find(o.Image.Ref()); err == nil && have.Phase == images.PhaseReady && have.Claim != "" {
		return have, nil
	}
	return nil, nil
}

// complete fills in what nobody has given, and says how a claim that is there differs from the one that is meant. A
// StorageClass that was given must be there.
func (o *Options) complete(ctx context.Context, c *client.Client, t cli.Target) error {
	if o.Claim.Size == "" {
		o.Claim.Size = o.Image.Size
	}
	said, err := o.There(ctx, o.Factory, c, t, func(there *corev1.PersistentVolumeClaim) string {
		if there.Annotations[uploads.AnnotationImage] == o.Image.Ref() {
			return "" // of a pull that did not end
		}
		return fmt.Sprintf("is not that of image %s: its disk would be replaced; choose another --name", o.Image.Ref())
	})
	if err != nil {
		return err
	}
	if said != "" {
		list, err := images.List(ctx, c, t.Namespace)
		if err != nil {
			return err
		}
		if image, err := list.Find(o.Image.Ref()); err == nil && image.Name == t.Name {
			said += fmt.Sprintf("; `%s image rm %s%s` deletes it", o.Factory.Program, o.Image.Ref(),
				o.Factory.InNamespace(t.Namespace))
		}
		o.say("%s", said)
	}
	o.checkDefaults(ctx, c, t.Namespace)
	return nil
}

// say tells the user a note.
func (o *Options) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); o.note != nil {
		o.note(text)
	} else {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s\n", text)
	}
}

// checkDefaults leaves out an instance type and a preference that the cluster has not: a VM that names them would wait
// for them.
func (o *Options) checkDefaults(ctx context.Context, c *client.Client, namespace string) {
	for _, d := range []struct {
		field string
		name  *string
	}{{"instancetype", &o.Image.Instancetype}, {"preference", &o.Image.Preference}} {
		if *d.name == "" {
			continue
		}
		err := o.Factory.CheckReferent(ctx, c, namespace, cli.Referent{Field: d.field, Name: *d.name})
		if err == nil {
			continue
		}
		o.say("VMs of the image get no %s by default, since the cluster has no %s; `%s install --instancetypes` "+
			"brings the common ones", d.field, *d.name, o.Factory.Program)
		*d.name = ""
	}
}

// send uploads a file to the claim.
func (o *Options) send(ctx context.Context, c *client.Client, t cli.Target, path, name string) error {
	file, err := imagefile.Open(path, name, "")
	if err != nil {
		return err
	}
	defer file.Close()
	size := resource.MustParse(o.Claim.Size)
	if found := file.Found; found.VirtualSize > size.Value() {
		return cli.UsageErrorf("--size: the image's disk has %d bytes, which do not fit into %s", found.VirtualSize,
			o.Claim.Size)
	}
	o.Claim.Annotations = map[string]string{uploads.AnnotationImage: o.Image.Ref()}
	_, err = o.Send(ctx, o.Factory, c, "upload "+o.Image.Ref(), "", upload.Options{
		Namespace: t.Namespace, Claim: t.Name, Image: file.Image, Create: &o.Claim, Labels: o.Image.Labels(),
	})
	return err
}

// report offers the image of the claim as a DataSource, and prints it.
func (o *Options) report(ctx context.Context, c *client.Client, t cli.Target) error {
	offered := o.offer(ctx, c, t.Namespace, t.Name)
	if o.Output.Given() {
		have, err := images.Get(ctx, c, t.Namespace, t.Name)
		if err != nil {
			return err
		}
		have.DataSource = offered
		return o.Output.Print(have, o.Factory.IO.Out)
	}
	_, err := fmt.Fprintf(o.Factory.IO.Out, "claim %s has image %s\n", t.Name, o.Image.Ref())
	return err
}
