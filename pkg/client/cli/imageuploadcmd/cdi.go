package imageuploadcmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/cdi"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/imagefile"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// poll is how often CDI's progress is looked at.
const poll = time.Second

// validateWay refuses what the way of the image cannot do.
func (o *Options) validateWay() error {
	needs := o.needs()
	switch {
	case !slices.Contains([]string{viaAuto, viaCDI, viaNative}, o.Via):
		return cli.UsageErrorf("--via: %q is not one of %s, %s, %s", o.Via, viaAuto, viaCDI, viaNative)
	case o.Via == viaNative && needs != "":
		return cli.UsageErrorf("%s needs CDI, through which --via=native does not go; leave --via out", needs)
	case o.Cancel && (o.Via == viaCDI || needs != ""):
		return cli.UsageErrorf("--cancel ends an upload through the API server; one through CDI ends with its command")
	case o.Format != "" && (o.Via == viaCDI || needs != ""):
		return cli.UsageErrorf("--format is for an upload through the API server; CDI finds it out; leave --format out")
	}
	return nil
}

// needs is what of the command line needs CDI; empty for nothing.
func (o *Options) needs() string {
	switch {
	case o.Kind == kindVolume:
		return "a DataVolume"
	case o.Archive != "":
		return "--archive-path"
	}
	return ""
}

// way returns CDI's upload proxy if the image goes there, and nil if it goes through the API server: where the cluster
// has not CDI's upload API, or CDI does not say where its proxy is, or an upload to the claim has begun so, or it is
// compressed with zstd.
func (o *Options) way(ctx context.Context, c *client.Client, t cli.Target, file *imagefile.File) (*cdi.Proxy, error) {
	if o.DataSource {
		if served, err := cdi.Serves(ctx, c, cdi.Group, cdi.DataSources); err != nil {
			return nil, err
		} else if !served {
			return nil, errors.New("--datasource needs CDI, which the cluster has not; leave it out")
		}
	}
	if o.Via == viaNative || o.Via == viaAuto && (o.Format != "" || o.needs() == "" && o.Proxy == "" && zstd(file)) {
		return nil, nil
	}
	must := o.needs()
	if must == "" && o.Via == viaCDI {
		must = "--via=cdi"
	}
	served, err := cdi.Serves(ctx, c, cdi.UploadGroup, cdi.Tokens)
	switch {
	case err != nil && must == "":
		return nil, fmt.Errorf("%w; --via=native does without CDI", err)
	case err != nil:
		return nil, err
	case !served && must != "":
		return nil, fmt.Errorf("%s needs CDI, and the cluster has not its upload API (upload.cdi.kubevirt.io); "+
			"`%s image-upload pvc %s` needs none", must, o.Factory.Program, t.Name)
	case !served:
		return nil, nil
	}
	if must == "" && o.begun(ctx, c, t) {
		return nil, nil
	}
	proxy, err := cdi.FindProxy(ctx, c, o.Proxy, o.Insecure)
	var wrong *cdi.AddressError
	switch {
	case errors.As(err, &wrong) && o.Proxy != "":
		return nil, cli.UsageErrorf("--uploadproxy-url: %s", err)
	case errors.Is(err, cdi.ErrNoProxy) && must == "":
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: the image goes through the API server: %s\n", err)
		return nil, nil
	}
	return proxy, err
}

// zstd reports an image that is compressed in a way that not every CDI knows, which then writes the compressed bytes as
// the disk.
func zstd(file *imagefile.File) bool {
	var head [8]byte
	n, _ := file.Image.ReadAt(head[:], 0) // what cannot be read is known when it is sent
	return imageformat.CompressionOf(head[:n]) == imageformat.Zstd
}

// begun reports whether an upload through the API server was asked for to the claim.
func (o *Options) begun(ctx context.Context, c *client.Client, t cli.Target) bool {
	there, err := c.ReadMetadata(ctx, "/api/v1/namespaces/"+t.Namespace+"/"+client.Claims+"/"+t.Name)
	return err == nil && uploads.AskedFor(there.Annotations)
}

// sendCDI sends the image to CDI's upload proxy.
func (o *Options) sendCDI(
	ctx context.Context, c *client.Client, t cli.Target, file *imagefile.File, proxy *cdi.Proxy,
) (*upload.Report, error) {
	create, err := o.createCDI(ctx, c, t)
	if err != nil {
		return nil, err
	}
	title := filepath.Base(o.path())
	show, ended := o.Progress(o.Factory, title, file.Image.Size)
	note := func(format string, args ...any) {
		ended() // the note has a line of its own
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: "+format+"\n", args...)
	}
	stage, err := cdi.Upload(ctx, c, cdi.Options{
		Namespace: t.Namespace, Name: t.Name, DataVolume: o.Kind == kindVolume, Create: create, Replace: o.NoCreate,
		Archive: o.Archive != "", Labels: o.labels(), ForceBind: o.ForceBind, Image: file.Image, Size: file.Image.Size,
		Proxy: proxy, Retries: o.Retries, Patience: time.Duration(o.WaitSeconds) * time.Second, Poll: poll, Show: show,
		Waits: func(why string) { note("%s: %s", title, why) },
		Again: func(why error) { note("%s is sent again: %s", title, cli.Explain(why, o.Factory.Connection())) },
	})
	ended()
	switch {
	case err == nil:
	case stage == cdi.Made:
		native := ""
		if o.Kind == kindClaim && o.needs() == "" {
			native = "; the other way is --via=native --no-create"
		}
		note("%s was made for it and is left; the command uploads to it when it is repeated%s", o.target(t), native)
	case stage == cdi.Asked:
		note("CDI holds %s ready for an upload: repeat the command or, before a VM uses its disk, `kubectl annotate "+
			"pvc %s -n %s %s-`; if part of the image was sent, its disk is no longer whole, and only the first helps",
			o.target(t), t.Name, t.Namespace, cdi.AnnotationTarget)
	case stage == cdi.Done:
		note("the image is on %s", o.target(t))
	case stage == cdi.Sent:
		o.Factory.IO.Interrupted(err, "CDI has the image, and goes on writing it to %s", o.target(t))
	}
	if err != nil {
		return nil, err
	}
	state := uploads.State{Received: file.Image.Size, Format: file.Found.Format, VirtualSize: file.Found.VirtualSize}
	report := upload.NewReport(t.Namespace, t.Name, state, 0)
	report.Via = viaCDI
	return report, nil
}

func (o *Options) target(t cli.Target) string {
	if o.Kind == kindVolume {
		return "DataVolume " + t.Namespace + "/" + t.Name
	}
	return "claim " + t.Namespace + "/" + t.Name
}

// createCDI returns the claim that is to be made; nil when it, or its DataVolume, must be there. Of a DataVolume CDI
// chooses what no flag has.
func (o *Options) createCDI(ctx context.Context, c *client.Client, t cli.Target) (*upload.Claim, error) {
	if o.NoCreate || o.Claim.Size == "" {
		if o.NoCreate && len(o.labels()) > 0 {
			return nil, cli.UsageErrorf("--default-instancetype and --default-preference are for what is made; leave " +
				"them out, or --no-create")
		}
		return nil, nil
	}
	claim := o.Claim
	claim.VolumeMode = mode(claim.VolumeMode)
	if o.Kind == kindVolume {
		if !o.given["access-mode"] {
			claim.AccessMode = ""
		}
		if !o.given["volume-mode"] && !o.Block {
			claim.VolumeMode = ""
		}
	}
	if claim.AccessMode == string(corev1.ReadOnlyMany) {
		return nil, cli.UsageErrorf("--access-mode: CDI cannot write to ReadOnlyMany; choose another")
	}
	// Whether one that is there can take the image is judged later.
	said, err := o.There(ctx, o.Factory, c, t, func(*corev1.PersistentVolumeClaim) string { return "" })
	if said != "" {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s\n", said)
	}
	return &claim, err
}

// offer makes the DataSource of --datasource.
func (o *Options) offer(ctx context.Context, c *client.Client, t cli.Target) error {
	var claim corev1.PersistentVolumeClaim
	path := "/api/v1/namespaces/" + t.Namespace + "/" + client.Claims + "/" + t.Name
	if err := c.Read(ctx, path, nil, &claim); err != nil {
		return fmt.Errorf("read claim %s/%s: %w", t.Namespace, t.Name, err)
	}
	_, err := cdi.Offer(ctx, c, &claim, cdi.Offering{Labels: o.labels(), Replace: true})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s has the image, and there is no DataSource for it: %w", o.target(t), err)
	}
	return err
}
