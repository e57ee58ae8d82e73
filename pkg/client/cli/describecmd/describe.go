// Package describecmd is `virtctl describe`.
package describecmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl describe`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Names   []string
}

// NewCmdDescribe makes the command.
func NewCmdDescribe(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "describe NAME...",
		Short: "Show all there is to say about virtual machines: spec, guest, disks, interfaces, conditions, events",
		Example: cli.Examples(f.Program, `
			virtctl describe demo
			virtctl describe demo -o json | jq .why.verdict`),
		Args:              cli.Args(1, -1, "the name of a VM"),
		ValidArgsFunction: completioncmd.VMs(f, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Names = args
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	o.Output.AddFlags(cmd)
	return cmd
}

// Run describes each machine in turn and goes on after a failure.
func Run(ctx context.Context, o *Options) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	var failures []error
	for i, name := range o.Names {
		target, err := cli.ParseTarget(name, namespace)
		if err != nil {
			return err
		}
		report, err := describe.Get(ctx, c, target.Namespace, target.Name, o.Factory.Now())
		if err != nil {
			failures = append(failures, err)
			continue
		}
		switch {
		case o.Output.Given():
			err = o.Output.Print(report, o.Factory.IO.Out)
		default:
			err = write(o.Factory.IO.Out, report, o.Factory.Now(), i > 0)
		}
		if err != nil {
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
