package imagecmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/pace"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// ListOptions are the options of `virtctl image list`.
type ListOptions struct {
	Factory       *cli.Factory
	Output        *cli.Output
	Available     bool
	AllNamespaces bool
}

// NewCmdList makes `virtctl image list`.
func NewCmdList(f *cli.Factory) *cobra.Command {
	o := &ListOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images of a namespace, or those that can be pulled",
		Long: `List the images of a namespace, or those that can be pulled.

Claims to which a disk is uploaded are listed, too, and those whose upload did not end well, with the bytes that came.

Where the cluster has CDI, its DataSources are images, too: of the version latest, unless labels name another.`,
		Example: cli.Examples(f.Program, `
			virtctl image list
			virtctl image list --available`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Available && o.AllNamespaces {
				return cli.UsageErrorf("--available lists the catalogue, which has no namespaces; remove -A")
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return List(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Available, "available", false, "List the catalogue: what image pull can bring")
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "List the images of all namespaces")
	o.Output.AddFlags(cmd)
	return cmd
}

// List prints the table or the objects.
func List(ctx context.Context, o *ListOptions) error {
	if o.Available {
		return o.available(ctx)
	}
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	if o.AllNamespaces {
		namespace = ""
	}
	list, err := images.List(ctx, c, namespace)
	if err != nil {
		return err
	}
	list.Follow(ctx, c)
	if o.Output.Given() {
		return o.Output.Print(list, o.Factory.IO.Out)
	}
	if len(list.Items) == 0 {
		fmt.Fprintf(o.Factory.IO.ErrOut, "No images found. `%s image list --available` lists those that can be "+
			"pulled.\n", o.Factory.Program)
		return nil
	}
	t := cli.NewTable(o.Factory.IO.Out)
	row := func(namespace string, cells ...string) {
		if o.AllNamespaces {
			cells = append([]string{namespace}, cells...)
		}
		t.Row(cells...)
	}
	row("NAMESPACE", "IMAGE", "CLAIM", "PHASE", "SIZE", "USER", "INSTANCETYPE", "PREFERENCE", "AGE")
	for i := range list.Items {
		p := &list.Items[i]
		row(p.Namespace, orNone(p.Image), claimOf(p), phaseOf(p), orNone(p.Size), orNone(p.User),
			orNone(p.Instancetype), orNone(p.Preference), age(o.Factory.Now(), p.CreationTimestamp.Time))
	}
	return t.Flush()
}

// available prints the catalogue.
func (o *ListOptions) available(ctx context.Context) error {
	all, err := catalogue(ctx, o.Factory)
	if err != nil {
		return err
	}
	if o.Output.Given() {
		return o.Output.Print(all, o.Factory.IO.Out)
	}
	t := cli.NewTable(o.Factory.IO.Out)
	t.Row("IMAGE", "ALIASES", "ARCHITECTURES", "SIZE", "USER", "TITLE")
	for i := range all.Images {
		image := &all.Images[i]
		t.Row(image.Ref(), orNone(strings.Join(image.Aliases, ",")), architectures(image), image.Size,
			orNone(image.User), orNone(image.Title))
	}
	return t.Flush()
}

func architectures(image *images.Image) string {
	var out []string
	for _, s := range image.Sources {
		out = append(out, s.Arch)
	}
	return strings.Join(out, ",")
}

// phaseOf is what a table shows as the phase of an image: with how far its upload is or was.
func phaseOf(p *images.Pulled) string {
	switch {
	case p.Phase == images.PhaseReady:
	case p.Bytes > 0:
		return fmt.Sprintf("%s (%s of %s)", p.Phase, pace.Size(float64(p.Received)), pace.Size(float64(p.Bytes)))
	case p.Received > 0: // of a container image, whose size nobody knows yet
		return fmt.Sprintf("%s (%s)", p.Phase, pace.Size(float64(p.Received)))
	}
	return p.Phase
}

// claimOf is what a table shows as the claim of an image.
func claimOf(p *images.Pulled) string {
	if p.Claim == "" {
		return "datasource/" + p.DataSource
	}
	return p.Claim
}

func orNone(text string) string { return cmp.Or(text, "<none>") }

func age(now, then time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(0, now.Sub(then)))
}
