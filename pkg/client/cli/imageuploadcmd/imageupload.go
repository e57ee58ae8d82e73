// Package imageuploadcmd is `virtctl image-upload`.
package imageuploadcmd

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	Kind, Name     string
	Image, Archive string
	Format         string
	NoCreate       bool
	DataSource     bool
	Via            string
	Proxy          string
	Insecure       bool
	ForceBind      bool
	Retries        uint
	Cancel         bool
	Instancetype   string
	InstancetypeOf string
	Preference     string
	PreferenceOf   string
	// given are the flags that were given.
	given map[string]bool
}

var volumeModes = []string{"filesystem", "block"}

// The ways of an image: as the cluster has it, by CDI, or through the API server.
const (
	viaAuto   = "auto"
	viaCDI    = "cdi"
	viaNative = "native"
)

// NewCmdImageUpload makes the command.
func NewCmdImageUpload(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "image-upload (pvc|dv) NAME --image-path FILE",
		Short: "Upload a disk image to a PersistentVolumeClaim",
		Long: `Upload a disk image to a PersistentVolumeClaim, or to a DataVolume of CDI.

Where the cluster has CDI's upload API the image goes through CDI's upload proxy, as with KubeVirt's virtctl, and
through the API server where it has not. --via=native takes the way through the API server, --via=cdi that through the
proxy.

The image is raw or ISO, qcow2, vmdk, vhd or vhdx, also compressed with gzip, xz or zstd; the disk on the claim is raw,
and as large as the claim, which is made with --size unless it is there. An image that refers to other files is refused.

Through the API server neither CDI nor a proxy is needed. When the connection is lost, the upload goes on where it was;
so it does when the command is repeated. A VM can use the claim when all has arrived and its checksum is right.

Through CDI's proxy the image is sent again when the connection is lost. A DataVolume (dv) and an archive
(--archive-path) need that way; --uploadproxy-url, --insecure, --force-bind and --retry mean something there only.`,
		Example: cli.Examples(f.Program, `
			virtctl image-upload pvc fedora --size=10Gi --image-path=fedora.qcow2
			virtctl image-upload pvc win --size=64Gi --image-path=win.vhdx --default-preference=windows.11
			virtctl image-upload pvc disk --no-create --image-path=disk.raw.xz
			virtctl image-upload pvc fedora --cancel

			# With CDI
			virtctl image-upload dv fedora --size=10Gi --image-path=fedora.qcow2 --datasource
			virtctl image-upload dv files --size=1Gi --archive-path=files.tar`),
		Args:              o.args,
		ValidArgsFunction: complete(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = map[string]bool{}
			cmd.Flags().Visit(func(flag *pflag.Flag) { o.given[flag.Name] = true })
			if len(args) > 0 {
				o.Kind, o.Name = args[0], args[1]
			}
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
	flags.StringVar(&o.Via, "via", viaAuto, "Which way the image goes: auto, cdi or native")
	flags.StringVar(&o.Archive, "archive-path", "",
		"With CDI: a tar archive whose files become the claim's, instead of an image")
	flags.BoolVar(&o.DataSource, "datasource", false,
		"With CDI: make a DataSource of the same name, or turn the one that is there to the claim")
	flags.StringVar(&o.Proxy, "uploadproxy-url", "", "With CDI: `URL` of its upload proxy; what CDI says unless given")
	flags.BoolVar(&o.Insecure, "insecure", false, "With CDI: send the image whoever the upload proxy is")
	flags.BoolVar(&o.ForceBind, "force-bind", false,
		"With CDI: have a claim bound whose storage class would wait for a pod")
	flags.UintVar(&o.Retries, "retry", 5, "With CDI: how often the image is sent again when it gets lost on the way")
	flags.StringVar(&o.Name, "pvc-name", "", "KubeVirt's old way to say pvc NAME")
	flags.StringVar(&o.Claim.Size, "pvc-size", "", "KubeVirt's old name of --size")
	for _, old := range []string{"pvc-name", "pvc-size"} {
		flags.Lookup(old).Hidden = true
	}
	cli.CompleteFlag(cmd, "via", viaAuto, viaCDI, viaNative)
	cli.CompleteFlag(cmd, "volume-mode", volumeModes...)
	cli.CompleteFlag(cmd, "format", strings.Split(formats(), ", ")...)
	o.Output.AddFlags(cmd)
	return cmd
}

// args takes the kind and the name, or neither where --pvc-name has it.
func (o *Options) args(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("pvc-name") {
		o.Kind = kindClaim
		return cli.Args(0, 0, "no arguments beside --pvc-name")(cmd, args)
	}
	return cli.Args(2, 2, "pvc or dv, and a name")(cmd, args)
}

// The kinds that an image is uploaded to.
const (
	kindClaim  = "pvc"
	kindVolume = "dv"
)

// complete completes pvc and dv, and after them the names of claims, which are those of DataVolumes, too.
func complete(f *cli.Factory) cobra.CompletionFunc {
	claims := completioncmd.Claims(f)
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return []string{kindClaim, kindVolume}, cobra.ShellCompDirectiveNoFileComp
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
	if o.Kind = strings.ToLower(o.Kind); o.Kind != kindClaim && o.Kind != kindVolume {
		return cli.UsageErrorf("%q: an image is uploaded to a claim or a DataVolume; write pvc NAME or dv NAME", o.Kind)
	}
	o.Claim.VolumeMode = strings.ToLower(o.Claim.VolumeMode)
	if o.Block {
		o.Claim.VolumeMode = "block"
	}
	if err := o.validateWay(); err != nil {
		return err
	}
	switch {
	case o.Cancel && (o.Image != "" || o.Archive != ""):
		return cli.UsageErrorf("--cancel ends an upload and sends nothing; leave --image-path out")
	case o.Cancel:
		return nil
	case o.Image != "" && o.Archive != "":
		return cli.UsageErrorf("--image-path and --archive-path exclude each other; remove one")
	case o.Image == "" && o.Archive == "":
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
	file, err := o.open()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := o.fits(file.Found); err != nil {
		return err
	}
	proxy, err := o.way(ctx, c, t, file)
	if err != nil {
		return err
	}
	began := o.Factory.Now()
	send := o.sendNative
	if proxy != nil {
		send = func(ctx context.Context, c *client.Client, t cli.Target, file *imagefile.File) (*upload.Report, error) {
			return o.sendCDI(ctx, c, t, file, proxy)
		}
	}
	report, err := send(ctx, c, t, file)
	if err != nil {
		return err
	}
	if o.DataSource {
		if err := o.offer(ctx, c, t); err != nil {
			return err
		}
	}
	took := o.Factory.Now().Sub(began)
	report.Seconds = took.Round(time.Millisecond).Seconds()
	if o.Output.Given() {
		return o.Output.Print(report, o.Factory.IO.Out)
	}
	what, has := "claim", "the disk of"
	if o.Kind == kindVolume {
		what = "DataVolume"
	}
	sent := fmt.Sprintf("%d bytes", report.Bytes)
	if o.Archive != "" {
		has = "the files of"
	} else if report.Format != "" {
		sent += " (" + strings.TrimSuffix(report.Format+", "+report.Compression, ", ") + ")"
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "%s %s has %s %s: %s were sent in %s\n", what, t.Name, has,
		filepath.Base(o.path()), sent, took.Round(time.Second/10))
	return err
}

// path is where the image or the archive is.
func (o *Options) path() string { return cmp.Or(o.Image, o.Archive) }

func (o *Options) open() (*imagefile.File, error) {
	if o.Archive != "" {
		return imagefile.OpenArchive(o.Archive)
	}
	return imagefile.Open(o.Image, o.Image, imageformat.Format(o.Format))
}

// fits refuses an image whose disk has no room on the claim that is made.
func (o *Options) fits(found imageformat.Info) error {
	if o.Claim.Size == "" {
		return nil
	}
	if size := resource.MustParse(o.Claim.Size); found.VirtualSize > size.Value() {
		return cli.UsageErrorf("--size: the image's disk has %d bytes, which do not fit into %s; give --size=%s "+
			"or more", found.VirtualSize, o.Claim.Size, fitting(found.VirtualSize))
	}
	return nil
}

// sendNative sends the image through the API server.
func (o *Options) sendNative(
	ctx context.Context, c *client.Client, t cli.Target, file *imagefile.File,
) (*upload.Report, error) {
	create, err := o.create(ctx, c, t)
	if err != nil {
		return nil, err
	}
	cancel := fmt.Sprintf("; `%s image-upload pvc %s%s --cancel` ends it", o.Factory.Program, t.Name,
		o.Factory.InNamespace(t.Namespace))
	state, err := o.Send(ctx, o.Factory, c, filepath.Base(o.Image), cancel, upload.Options{
		Namespace: t.Namespace, Claim: t.Name, Image: file.Image, Create: create, Labels: o.labels(),
	})
	if err != nil {
		return nil, err
	}
	return upload.NewReport(t.Namespace, t.Name, state, 0), nil
}

// notAsked says of a claim why an upload does not replace its disk unasked: none was asked for yet, or the claim has
// been used since.
const notAsked = "was not made for an upload, or has been used since: its disk, which may be a VM's, would be " +
	"replaced; choose another name, or give --no-create to say that you mean it"

// create returns the claim that is to be made; nil when it must exist already. It fails when the claim is not there and
// cannot be made, before anything is.
func (o *Options) create(ctx context.Context, c *client.Client, t cli.Target) (*upload.Claim, error) {
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
	claim.VolumeMode = mode(claim.VolumeMode)
	claim.Annotations = map[string]string{uploads.AnnotationMade: uploads.MadeFor}
	return &claim, err
}

// mode returns a volume mode as the API spells it.
func mode(flag string) string { return strings.ToUpper(flag[:1]) + flag[1:] }

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
