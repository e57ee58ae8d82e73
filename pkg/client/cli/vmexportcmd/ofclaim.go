package vmexportcmd

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// Way is how another command downloads a claim: flags of `virtctl vmexport download`.
type Way struct {
	Format    string
	LocalPort uint16
	export.Reach
}

// AddFlags registers the flags.
func (w *Way) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.Format, "format", formatGzip, "gzip: compressed, as it comes; raw: decompressed")
	flags.BoolVar(&w.PortForward, "port-forward", false,
		"Go through the API server also where the export has an external address")
	flags.Uint16Var(&w.LocalPort, "local-port", 0, "Not needed: --port-forward opens no port of this machine")
	flags.BoolVar(&w.Insecure, "insecure", false, "Believe any certificate")
	cli.CompleteFlag(cmd, "format", formatGzip, formatRaw)
}

// Given reports whether any of the flags was given.
func (w *Way) Given() bool {
	return w.Format != formatGzip || w.LocalPort != 0 || w.Reach != (export.Reach{})
}

// Check refuses what no download takes.
func (w *Way) Check() error {
	if !slices.Contains([]string{formatGzip, formatRaw}, w.Format) {
		return cli.UsageErrorf("--format: %q is not one of gzip, raw", w.Format)
	}
	return nil
}

// OfClaim returns the options of the download of a claim to a file: by an export called name, which is made and deleted
// again.
func (w *Way) OfClaim(f *cli.Factory, name, namespace, claim, file string) *DownloadOptions {
	return &DownloadOptions{
		Factory: f, Name: name, Namespace: namespace, File: file, Format: w.Format, LocalPort: w.LocalPort,
		Reach: w.Reach, Readiness: readiness,
		request: &export.Request{Name: name, Source: export.Source{Kind: exports.KindClaim, Name: claim}},
	}
}

// readiness is how long an export may take to be ready.
const readiness = 2 * time.Minute
