package vmexportcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/copybar"
	"github.com/virtkit/virtkit/pkg/client/printable"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// DownloadOptions are the options of `virtctl vmexport download`.
type DownloadOptions struct {
	Factory *cli.Factory
	// Namespace is the export's; that of the kubeconfig or --namespace when it is empty.
	Namespace, Name string
	source
	more
	export.Reach

	File, Volume, Format string
	Keep, Delete         bool
	Manifest, Secret     bool
	ManifestFormat       string
	LocalPort            uint16
	Retries              uint
	Readiness            time.Duration

	request *export.Request
}

// pause is between two tries of a request.
const pause = 2 * time.Second

const formatRaw, formatGzip, formatQCOW2, formatOVA = "raw", "gzip", "qcow2", "ova"

// NewCmdDownload makes `virtctl vmexport download`.
func NewCmdDownload(f *cli.Factory) *cobra.Command {
	o := &DownloadOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "download NAME --output FILE",
		Short: "Download a volume of an export, or its VM as OVA",
		Long: `Download a volume of an export, or its VM as OVA, or the manifests of its VM.

With --vm, --snapshot or --pvc the export is made, and deleted after the download; with --manifest it stays, for another
cluster reads the disks from it. The volume comes compressed; with
--format=raw it is decompressed, and the file has holes where the disk has zeros. Each part is verified by its checksum.
With --format=qcow2 it comes as a compressed image. With --format=ova the VM of the export comes with all of its disks
as an archive for other hypervisors, which "virtctl import" takes, too.

When the connection is cut, the download goes on where it was. FILE is there when all of it is; .FILE.part is it before.
When the download is interrupted or killed, or fails, the same command goes on with .FILE.part, if the disk is the same
still, and says so; what nobody can go on with is removed.

The connection goes to the export's external address, or, where it has none, and for qcow2 and ova, through
the API server.`,
		Example: cli.Examples(f.Program, `
			virtctl vmexport download demo-export --vm=demo --output=disk.img.gz
			virtctl vmexport download snap --snapshot=before-upgrade --volume=root --format=raw --output=root.img
			virtctl vmexport download snap --snapshot=before-upgrade --volume=root --format=qcow2 --output=root.qcow2
			virtctl vmexport download demo-export --vm=demo --format=ova --output=demo.ova
			virtctl vmexport download demo-export --output=- | gunzip | sha256sum
			virtctl vmexport download demo-export --vm=demo --manifest --include-secret`),
		Args:              cli.Args(1, 1, "the name of the export"),
		ValidArgsFunction: completioncmd.Exports(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.complete(cmd); err != nil {
				return err
			}
			return RunDownload(cmd.Context(), o)
		},
	}
	o.source.addFlags(f, cmd)
	o.more.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.File, "output", "o", "", "The `FILE` to write; - is standard output")
	flags.StringVar(&o.Volume, "volume", "", "The volume, for an export with more than one")
	flags.StringVar(&o.Format, "format", formatGzip,
		"gzip: raw and compressed, as it comes; raw: decompressed; qcow2; "+
			"ova: the VM with all disks, for other hypervisors")
	flags.BoolVar(&o.Keep, "keep-vme", false, "Keep the export that was made for the download")
	flags.BoolVar(&o.Delete, "delete-vme", false, "Delete the export after the download, whoever made it")
	flags.BoolVar(&o.PortForward, "port-forward", false,
		"Go through the API server also where the export has an external address")
	flags.Uint16Var(&o.LocalPort, "local-port", 0, "Not needed: --port-forward opens no port of this machine")
	flags.StringVar(&o.ServiceURL, "service-url", "",
		"`HOST:PORT` that leads to the export's Service, a NodePort for example, instead of an external address")
	flags.BoolVar(&o.Insecure, "insecure", false, "Believe any certificate")
	flags.UintVar(&o.Retries, "retry", 0, "How often to try again when a request fails")
	flags.DurationVar(&o.Readiness, "readiness-timeout", readiness, "How long to wait until the export is ready")
	flags.BoolVar(&o.Manifest, "manifest", false,
		"Download the manifests from which another cluster makes the VM with CDI, instead of a volume")
	flags.BoolVar(&o.Secret, "include-secret", false, "With --manifest, also the Secret with which CDI downloads")
	flags.StringVar(&o.ManifestFormat, "manifest-output-format", "yaml", "yaml or json")
	cli.CompleteFlag(cmd, "format", formatGzip, formatRaw, formatQCOW2, formatOVA)
	cli.CompleteFlag(cmd, "manifest-output-format", "yaml", "json")
	return cmd
}

func (o *DownloadOptions) complete(cmd *cobra.Command) error {
	if err := checkName(o.Name); err != nil {
		return err
	}
	of, err := o.chosen()
	if err != nil {
		return err
	}
	o.ManifestFormat = strings.ToLower(o.ManifestFormat)
	switch {
	case o.Keep && o.Delete:
		return cli.UsageErrorf("--keep-vme and --delete-vme contradict each other")
	case o.PortForward && o.ServiceURL != "":
		return cli.UsageErrorf("--port-forward and --service-url are two ways; give one of them")
	case !slices.Contains([]string{formatGzip, formatRaw, formatQCOW2, formatOVA}, o.Format):
		return cli.UsageErrorf("--format: %q is not one of gzip, raw, qcow2, ova", o.Format)
	case o.Format == formatOVA && o.Volume != "":
		return cli.UsageErrorf("--format=ova downloads all disks of the VM; leave out --volume, or choose qcow2")
	case o.Format == formatOVA && o.Claim != "":
		return cli.UsageErrorf("a claim has no VM to be described in an OVA; give --vm or --snapshot, or choose qcow2")
	case o.ManifestFormat != "yaml" && o.ManifestFormat != "json":
		return cli.UsageErrorf("--manifest-output-format: %q is not one of yaml, json", o.ManifestFormat)
	case o.Manifest && o.Volume != "":
		return cli.UsageErrorf("--manifest downloads no volume; leave out --volume or --manifest")
	case o.Manifest && o.Claim != "":
		return cli.UsageErrorf("a claim has no manifests; leave out --pvc or --manifest")
	case o.Secret && !o.Manifest:
		return cli.UsageErrorf("--include-secret goes with --manifest")
	case !o.Manifest && o.File == "":
		return cli.UsageErrorf("name the file to write with --output; --output=- is standard output")
	case of == nil && (o.TTL != 0 || len(o.Labels)+len(o.Annotations) > 0 || o.Keep):
		return cli.UsageErrorf("--ttl, --labels, --annotations and --keep-vme are for an export that is made; give " +
			"--vm, --snapshot or --pvc, too")
	}
	if of != nil {
		request, err := o.more.request(o.Name, *of)
		if err != nil {
			return err
		}
		o.request = &request
	}
	return nil
}

// RunDownload makes the export where that is wanted, downloads, and deletes the export again.
func RunDownload(ctx context.Context, o *DownloadOptions) (err error) {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	namespace = cmp.Or(o.Namespace, namespace)
	if o.File == "-" {
		signal.Ignore(syscall.SIGPIPE) // a reader that leaves is an error, after which the export is deleted
	}
	if o.request != nil {
		if err := o.request.Source.Look(ctx, c, namespace); err != nil {
			return err
		}
	}
	var to *target
	if !o.Manifest || o.File != "" && o.File != "-" {
		if to, err = o.open(namespace); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, to.end(err))
			}
		}()
	}
	var from *export.Point
	var before types.UID
	if !o.Manifest {
		if from, before, err = to.resume(ctx); err != nil {
			return err
		}
	}
	uid, made, err := o.make(ctx, c, namespace, before)
	if err != nil {
		return err
	}
	if o.Delete || made && !o.Keep {
		defer func() {
			if o.Manifest && !o.Delete && err == nil {
				return // manifests are of no use without the export
			}
			gone := export.Delete(ctx, c, namespace, o.Name, uid, false)
			if apierrors.IsConflict(gone) {
				gone = nil // it is another one by now
			}
			if gone != nil && client.Passing(gone) {
				fmt.Fprintf(o.Factory.IO.ErrOut, "note: VirtualMachineExport %s stays until its time is over; "+
					"`%s vmexport delete %s%s` deletes it\n", o.Name, o.Factory.Program, o.Name,
					o.Factory.InNamespace(namespace))
			}
			if !apierrors.IsNotFound(gone) {
				err = errors.Join(err, gone)
			}
		}()
	}
	if to != nil && made && !o.Keep && !o.Manifest {
		if err := to.take(uid); err != nil {
			return err
		}
	}
	progress := o.progress()
	defer progress.end()
	d := export.Download{
		Namespace: namespace, Name: o.Name, Volume: o.Volume, Raw: o.Format == formatRaw,
		QCOW2: o.Format == formatQCOW2, OVA: o.Format == formatOVA, From: from, Reach: o.Reach,
		Retries: int(o.Retries), Pause: pause, Patience: export.DefaultPatience, Readiness: o.Readiness,
		Report: progress.report, Show: progress.show,
	}
	if o.Manifest {
		return o.manifests(ctx, c, d, to)
	}
	result, err := d.Run(ctx, c, to)
	progress.end()
	if err != nil {
		return err
	}
	for _, what := range result.NotIncluded {
		to.note("not in the file: %s", printable.Line(what))
	}
	if err := to.finish(); err != nil || to.out != nil {
		return err
	}
	form := string(result.Format)
	if d.Raw {
		form = formatRaw
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "%s has what VirtualMachineExport %s exports: %d bytes (%s)\n", o.File,
		o.Name, result.Bytes, form)
	return err
}

// open opens the file to write.
func (o *DownloadOptions) open(namespace string) (*target, error) {
	to, err := open(o.File, o.Factory.IO.RawOut())
	if err != nil {
		return nil, err
	}
	to.now = o.Factory.Now
	to.what = what{Namespace: namespace, Export: o.Name, Volume: o.Volume, Format: o.Format}
	to.note = func(format string, arguments ...any) {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: "+format+"\n", arguments...)
	}
	return to, nil
}

// make makes the export, unless it is there with the same source. One with the UID before was made by a run of the same
// download that was killed, and is this one's.
func (o *DownloadOptions) make(
	ctx context.Context, c *client.Client, namespace string, before types.UID,
) (uid types.UID, made bool, err error) {
	if o.request == nil {
		return "", false, nil
	}
	o.request.Namespace = namespace
	created, err := export.Create(ctx, c, export.New(*o.request), false)
	if err == nil {
		return created.UID, true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", false, err
	}
	there, err := export.Get(ctx, c, namespace, o.Name)
	if err != nil {
		return "", false, err
	}
	if of := there.Spec.Source; of.Kind != o.request.Source.Kind || of.Name != o.request.Source.Name {
		return "", false, fmt.Errorf("VirtualMachineExport %s/%s is there already, of %s %s; choose another name, or "+
			"leave out --vm, --snapshot and --pvc", namespace, o.Name, of.Kind, of.Name)
	}
	return there.UID, before != "" && there.UID == before, nil
}

func (o *DownloadOptions) manifests(ctx context.Context, c *client.Client, d export.Download, to *target) error {
	manifests, err := d.Manifests(ctx, c, o.ManifestFormat == "json", o.Secret)
	if err != nil {
		return err
	}
	if to == nil {
		_, err = o.Factory.IO.Out.Write(manifests.Data)
	} else if err = to.Begin(); err == nil {
		if _, err = to.Write(manifests.Data); err == nil {
			err = to.finish()
		}
	}
	if err != nil {
		return err
	}
	for _, note := range o.notes(manifests) {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s\n", note)
	}
	return nil
}

// notes returns what manifests do not say themselves: how long they are of use, and to whom.
func (o *DownloadOptions) notes(m *export.Manifests) []string {
	var out []string
	if !o.Delete {
		meanwhile := ""
		if m.Export.Spec.Source.Kind == exports.KindVM {
			meanwhile = "; VM " + m.Export.Spec.Source.Name + " must stay stopped until it has"
		}
		out = append(out, fmt.Sprintf("VirtualMachineExport %s stays, for the other cluster reads the disks from it: "+
			"until %s, or `%s vmexport delete %s -n %s`%s", o.Name,
			exports.Expiration(m.Export).UTC().Format(time.RFC3339), o.Factory.Program, o.Name, m.Export.Namespace,
			meanwhile))
	}
	if m.Service != "" {
		out = append(out, fmt.Sprintf("%s, where the manifests read from, is a Service of this cluster; another "+
			"cluster needs a Service of that name which leads here (docs/export.md)", m.Service))
	}
	return out
}

// progress shows on a terminal what is waited for and how far the download is.
type progress struct {
	o       *DownloadOptions
	bar     *copybar.Bar
	said    string
	showing bool
}

func (o *DownloadOptions) progress() *progress {
	return &progress{o: o, bar: copybar.New(o.Factory.IO.RawErr(), o.Factory.Now, o.Factory.IO.LineWidth)}
}

func (p *progress) report(text string) {
	if !p.o.Factory.IO.ErrIsTTY || text == p.said {
		return
	}
	p.end()
	p.said = text
	fmt.Fprintf(p.o.Factory.IO.ErrOut, "waiting for VirtualMachineExport %s: %s\n", p.o.Name, text)
}

func (p *progress) show(done, total int64) {
	if !p.o.Factory.IO.ErrIsTTY {
		return
	}
	if !p.showing {
		p.showing = true
		p.bar.Show(p.o.Name, 0, total)
	}
	if done > 0 {
		p.bar.Show(p.o.Name, done, total)
	}
}

// end ends the line that is shown; nothing when there is none.
func (p *progress) end() {
	if p.showing {
		p.showing = false
		p.bar.End()
	}
}
