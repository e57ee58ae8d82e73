// Package doctorcmd is `virtctl doctor`.
package doctorcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/printable"
	"github.com/virtkit/virtkit/pkg/version"
)

// Options of `virtctl doctor`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Quiet   bool
}

// NewCmdDoctor makes the command.
func NewCmdDoctor(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewNameless()}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine this program, the cluster, virtkit and the nodes, and say what fixes what is wrong",
		Long: `Examine this program, the cluster, virtkit on it, and each node and its machine: versions, credentials, clocks, storage,
components, certificates, admission, virt-handler, hardware virtualization, memory. Failed checks name the command
or setting that fixes them. Nothing is changed.

It ends with 1 when a check has failed, with 0 otherwise: a warning is no failure.`,
		Example: cli.Examples(f.Program, `
			virtctl doctor
			virtctl doctor --quiet
			virtctl doctor -o json | jq '.checks[] | select(.status == "failed")'`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "Show only what is not well")
	o.Output.AddFlags(cmd)
	return cmd
}

// Run gathers, examines and prints.
func Run(ctx context.Context, o *Options) error {
	f := o.Factory
	namespace, err := f.Namespace()
	if err != nil {
		return err
	}
	connection := f.Connection()
	var facts doctor.Facts
	err = f.IO.While("examining", func() error {
		facts = doctor.Gather(ctx, f.Client, doctor.Program{
			Version: version.Get(), Name: f.Program, Context: connection.Context, Server: connection.Server,
			CertNotAfter: connection.CertNotAfter,
		}, namespace, f.Now)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	facts.Explain = func(err error) string { return cli.Explain(err, connection) }
	report := doctor.Examine(facts)
	if o.Output.Given() {
		err = o.Output.Print(report, f.IO.Out)
	} else {
		err = o.print(report)
	}
	if err == nil && report.Status == doctor.Failed {
		err = &cli.ExitError{Code: cli.ExitFailure}
	}
	return err
}

var marks = map[doctor.Status]string{
	doctor.OK: "ok", doctor.Warning: "warn", doctor.Failed: "FAIL",
	doctor.Skipped: "skip",
}

// colours are those of marks.
var colours = map[string]cli.Colour{"ok": cli.Green, "warn": cli.Yellow, "FAIL": cli.Red, "skip": cli.Grey}

func (o *Options) print(r *doctor.Report) error {
	var b strings.Builder
	title, skipped := "", 0
	for _, c := range r.Checks {
		if c.Status == doctor.Skipped {
			skipped++
		}
		if o.Quiet && (c.Status == doctor.OK || c.Status == doctor.Skipped) {
			continue
		}
		area := string(c.Area)
		if c.Object != "" {
			area += " " + c.Object
		}
		if area != title {
			if title != "" {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "%s\n", printable.Line(area))
			title = area
		}
		fmt.Fprintf(&b, "  %-4s  %s\n", marks[c.Status], printable.Line(c.Message))
		for _, fix := range c.Fixes {
			fmt.Fprintf(&b, "        fix: %s\n", printable.Line(action.Advice(o.Factory.Program, fix)))
		}
	}
	if o.Quiet && skipped > 0 {
		// Nothing said of what was not looked at would read as all being well.
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %d checks were skipped; `%s doctor` says which, and why\n", skipped,
			o.Factory.Program)
	}
	return o.Factory.IO.PrintMarks(b.String(), colours)
}
