// Package imageuploadcmd is `virtctl image-upload`.
package imageuploadcmd

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/imagefile"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Options of `virtctl image-upload`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output

	imagefile.Options
	Kind, Name      string
	Image, Archive  string
	Format          string
	NoCreate        bool
	DataSource      bool
	Proxy           string
	Cancel          bool
	Instancetype    string
	InstancetypeOf  string
	Preference      string
	PreferenceOf    string
	insecure, force bool
}

var volumeModes = []string{"filesystem", "block"}

// NewCmdImageUpload makes the command.
func NewCmdImageUpload(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "image-upload pvc NAME --image-path FILE",
		Short: "Upload a disk image to a PersistentVolumeClaim",
		Long: `Upload a disk image to a PersistentVolumeClaim, through the API server.

The image is raw or ISO, qcow2, vmdk, vhd or vhdx, also compressed with gzip, xz or zstd; the disk on the claim is raw,
and as large as the claim. An image that refers to other files is refused. When the connection is lost, the upload goes
on where it was; so it does when the command is repeated. A VM can use the claim when all has arrived and its checksum
is right.

The claim is made with --size unless it is there. Neither CDI nor a proxy is needed: --uploadproxy-url, --insecure and
--force-bind are taken for scripts that have them. A DataVolume (dv) and an archive (--archive-path) need CDI, which
this command does not use.`,
		Example: cli.Examples(f.Program, `
			virtctl image-upload pvc fedora --size=10Gi --image-path=fedora.qcow2
			virtctl image-upload pvc win --size=64Gi --image-path=win.vhdx --default-preference=windows.11
			virtctl image-upload pvc disk --no-create --image-path=disk.raw.xz
			virtctl image-upload pvc fedora --cancel`),
		Args:              cli.Args(2, 2, "pvc and the name of a claim"),
		ValidArgsFunction: complete(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Kind, o.Name = args[0], args[1]
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	o.AddFlags(cmd, imagefile.Help{Claim: "a claim that is made", Block: "; --volume-mode=block"})
	flags := cmd.Flags()
	flags.StringVar(&o.Image, "image-path", "", "The file with the image")
	flags.StringVar(&o.Format, "format", "", "What the image is: "+formats()+"; found out unless given")
	flags.StringVar(&o.Claim.VolumeMode, "volume-mode", "filesystem",
		"Volume mode of a claim that is made: filesystem or block")
	flags.BoolVar(&o.NoCreate, "no-create", false, "Do not make the claim; it must be there")
	flags.StringVar(&o.Instancetype, "default-instancetype", "", "Instance type of VMs that boot from the claim")
	flags.StringVar(&o.InstancetypeOf, "default-instancetype-kind", "", "Kind of that instance type")
	flags.StringVar(&o.Preference, "default-preference", "", "Preference of VMs that boot from the claim")
	flags.StringVar(&o.PreferenceOf, "default-preference-kind", "", "Kind of that preference")
	flags.BoolVar(&o.Cancel, "cancel", false, "End the upload to the claim that is under way")
	flags.StringVar(&o.Archive, "archive-path", "", "Needs CDI, which this command does not use")
	flags.BoolVar(&o.DataSource, "datasource", false, "Needs CDI, which this command does not use")
	flags.StringVar(&o.Proxy, "uploadproxy-url", "", "Not needed: the upload goes through the API server")
	flags.BoolVar(&o.insecure, "insecure", false, "Not needed: the connection is the kubeconfig's")
	flags.BoolVar(&o.force, "force-bind", false, "Not needed: the upload binds the claim")
	cli.CompleteFlag(cmd, "volume-mode", volumeModes...)
	cli.CompleteFlag(cmd, "format", strings.Split(formats(), ", ")...)
	o.Output.AddFlags(cmd)
	return cmd
}

// complete completes pvc, and after it the names of claims.
func complete(f *cli.Factory) cobra.CompletionFunc {
	claims := completioncmd.Claims(f)
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return []string{"pvc"}, cobra.ShellCompDirectiveNoFileComp
		case 1:
			return claims(cmd, nil, word)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func formats() string {
	var out []string
	for _, format := range imageformat.Formats {
		out = append(out, string(format))
	}
	return strings.Join(out, ", ")
}

func (o *Options) validate() error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	switch o.Kind {
	case "pvc":
	case "dv":
		return cli.UsageErrorf("a DataVolume is CDI's, which this command does not use; "+
			"`%s image-upload pvc %s` needs no CDI", o.Factory.Program, o.Name)
	default:
		return cli.UsageErrorf("%q: an image is uploaded to a claim; write pvc NAME", o.Kind)
	}
	o.Claim.VolumeMode = strings.ToLower(o.Claim.VolumeMode)
	if o.Block {
		o.Claim.VolumeMode = "block"
	}
	switch {
	case o.Archive != "":
		return cli.UsageErrorf("--archive-path needs CDI, which this command does not use; upload an image with " +
			"--image-path")
	case o.DataSource:
		return cli.UsageErrorf("--datasource needs CDI, which this command does not use; leave it out")
	case o.Cancel && o.Image != "":
		return cli.UsageErrorf("--cancel ends an upload and sends nothing; leave --image-path out")
	case o.Cancel:
		return nil
	case o.Image == "":
		return cli.UsageErrorf("which image? Name its file with --image-path")
	case o.NoCreate && o.Claim.Size != "":
		return cli.UsageErrorf("--size is for a claim that is made; leave out --size or --no-create")
	case !slices.Contains(volumeModes, o.Claim.VolumeMode):
		return cli.UsageErrorf("--volume-mode: %q is not one of %s", o.Claim.VolumeMode,
			strings.Join(volumeModes, ", "))
	}
	if err := o.ValidateAccessMode(); err != nil {
		return err
	}
	switch {
	case o.Format != "" && !slices.Contains(imageformat.Formats, imageformat.Format(o.Format)):
		return cli.UsageErrorf("--format: %q is not one of %s", o.Format, formats())
	case o.InstancetypeOf != "" && o.Instancetype == "":
		return cli.UsageErrorf("--default-instancetype-kind is of an instance type; name it with " +
			"--default-instancetype")
	case o.PreferenceOf != "" && o.Preference == "":
		return cli.UsageErrorf("--default-preference-kind is of a preference; name it with --default-preference")
	}
	return o.ValidateSize()
}

// Run uploads.
func Run(ctx context.Context, o *Options) error {
	t, err := o.Factory.Target(o.Name)
	if err != nil {
		return err
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if o.Cancel {
		if err := upload.Cancel(ctx, c, t.Namespace, t.Name); err != nil {
			return err
		}
		_, err := fmt.Fprintf(o.Factory.IO.Out, "upload to claim %s is being cancelled\n", t.Name)
		return err
	}
	file, err := imagefile.Open(o.Image, o.Image, imageformat.Format(o.Format))
	if err != nil {
		return err
	}
	defer file.Close()
	create, err := o.create(ctx, c, t, file.Found)
	if err != nil {
		return err
	}
	began := o.Factory.Now()
	cancel := fmt.Sprintf("; `%s image-upload pvc %s%s --cancel` ends it", o.Factory.Program, t.Name,
		o.Factory.InNamespace(t.Namespace))
	state, err := o.Send(ctx, o.Factory, c, filepath.Base(o.Image), cancel, upload.Options{
		Namespace: t.Namespace, Claim: t.Name, Image: file.Image, Create: create, Labels: o.labels(),
	})
	if err != nil {
		return err
	}
	took := o.Factory.Now().Sub(began)
	if o.Output.Given() {
		return o.Output.Print(upload.NewReport(t.Namespace, t.Name, state, took), o.Factory.IO.Out)
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "claim %s has the disk of %s: %d bytes (%s) were sent in %s\n", t.Name,
		filepath.Base(o.Image), state.Received, state.Format, took.Round(time.Second/10))
	return err
}

// notAsked says of a claim that no upload was asked for yet.
const notAsked = "no upload has made it: its disk, which may be a VM's, would be replaced; choose another name, or " +
	"give --no-create to say that you mean it"

// create returns the claim that is to be made; nil when it must exist already. It fails when the claim is not there and
// cannot be made, before anything is.
func (o *Options) create(
	ctx context.Context, c *client.Client, t cli.Target, found imageformat.Info,
) (*upload.Claim, error) {
	if o.NoCreate || o.Claim.Size == "" {
		there, err := c.ReadMetadata(ctx, "/api/v1/namespaces/"+t.Namespace+"/"+client.Claims+"/"+t.Name)
		switch {
		case apierrors.IsNotFound(err) && !o.NoCreate:
			return nil, cli.UsageErrorf("claim %s/%s is not there; give --size to have it made", t.Namespace, t.Name)
		case err == nil && !o.NoCreate && !uploads.AskedFor(there.Annotations):
			return nil, fmt.Errorf("claim %s/%s is there already, and %s", t.Namespace, t.Name, notAsked)
		}
		return nil, err
	}
	size := resource.MustParse(o.Claim.Size)
	if found.VirtualSize > size.Value() {
		return nil, cli.UsageErrorf("--size: the image's disk has %d bytes, which do not fit into %s; give --size=%s "+
			"or more", found.VirtualSize, o.Claim.Size, fitting(found.VirtualSize))
	}
	said, err := o.There(ctx, o.Factory, c, t, func(there *corev1.PersistentVolumeClaim) string {
		if uploads.AskedFor(there.Annotations) {
			return ""
		}
		return notAsked
	})
	if said != "" {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s\n", said)
	}
	claim := o.Claim
	claim.VolumeMode = strings.ToUpper(claim.VolumeMode[:1]) + claim.VolumeMode[1:]
	claim.Annotations = map[string]string{uploads.AnnotationMade: uploads.MadeFor}
	return &claim, err
}

// fitting returns the size of a claim with a file system on which a disk fits, in MiB.
func fitting(disk int64) string { return fmt.Sprintf("%dMi", uploads.Room(disk)>>20) }

func (o *Options) labels() map[string]string {
	out := map[string]string{}
	for key, value := range map[string]string{
		uploads.LabelInstancetype: o.Instancetype, uploads.LabelInstancetypeKind: o.InstancetypeOf,
		uploads.LabelPreference: o.Preference, uploads.LabelPreferenceKind: o.PreferenceOf,
	} {
		if value != "" {
			out[key] = value
		}
	}
	return out
}
