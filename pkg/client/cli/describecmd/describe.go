// Package describecmd is `virtctl describe`.
package describecmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl describe`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Chosen  cli.Chosen
}

// NewCmdDescribe makes the command.
func NewCmdDescribe(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "describe (NAME... | -l SELECTOR)",
		Short: "Show all there is to say about virtual machines: spec, guest, disks, interfaces, conditions, events",
		Long: `Show all there is to say about virtual machines: spec, guest, disks, interfaces, conditions, events.

The exit code is 3 when one of several names is not there, after the others. -o json of several is a List.`,
		Example: cli.Examples(f.Program, `
			virtctl describe demo
			virtctl describe -l app=web
			virtctl describe demo -o json | jq .why.verdict`),
		Args:              cli.Args(0, -1, "the names of VMs"),
		ValidArgsFunction: completioncmd.Machines(f, completioncmd.VMs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Chosen.Names = args
			if err := o.Chosen.Validate(cmd, true); err != nil {
				return err
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	o.Chosen.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

// Run describes each machine in turn and goes on after a failure.
func Run(ctx context.Context, o *Options) error {
	c, targets, err := o.Chosen.Targets(ctx, o.Factory)
	if err != nil {
		return err
	}
	var failures []error
	var reports []runtime.Object
	for i, target := range targets {
		report, err := describe.Get(ctx, c, target.Namespace, target.Name, o.Factory.Now())
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if o.Output.Given() {
			reports = append(reports, report)
			continue
		}
		if err := write(o.Factory.IO.Out, report, o.Factory.Now(), i > 0); err != nil {
			return err
		}
	}
	if o.Output.Given() && (len(reports) > 0 || o.Chosen.Several()) {
		if err := o.Output.PrintAll(reports, !o.Chosen.Several(), o.Factory.IO.Out); err != nil {
			return err
		}
	}
	switch len(failures) {
	case 0:
		return nil
	case 1:
		return failures[0]
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return utilerrors.NewAggregate(failures)
}
