// Package scalecmd is `virtctl scale`.
package scalecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl scale`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// Name is the set's; Kind is what it is, unset where that is to be found out.
	Name string
	Kind *sets.Kind
	// Replicas is the new size, and Current what it must have been; -1 for any.
	Replicas, Current int32

	cli.Waiting
}

// NewCmdScale makes the command; runF replaces Run in tests.
func NewCmdScale(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "scale NAME|KIND/NAME|KIND NAME --replicas=N",
		Short: "Change how many machines a pool or replica set has",
		Long: `Change how many machines a VirtualMachinePool (vmpool) or VirtualMachineInstanceReplicaSet (vmirs) has. Without a kind
the set of that name is taken. Which machines go when there are too many is the set's to say; docs/sets.md.`,
		Example: cli.Examples(f.Program, `
			virtctl scale db --replicas 5
			virtctl scale vmirs/web --replicas 0
			virtctl scale vmpool/db --replicas 5 --current-replicas 3 --wait`),
		Args:              cli.Args(1, 2, "the name of a pool or replica set"),
		ValidArgsFunction: completioncmd.Sets(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, strings.Join(args, "/")); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.Int32Var(&o.Replicas, "replicas", 0, "How many machines there are to be, a `NUMBER`")
	flags.Int32Var(&o.Current, "current-replicas", -1, "Change nothing unless the set asks for this `NUMBER` now")
	o.AddFlags(cmd, "there are as many, all are ready, and the others are gone", 5*time.Minute)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) complete(cmd *cobra.Command, arg string) error {
	o.Name = arg
	if word, name, ok := strings.Cut(arg, "/"); ok {
		kind, known := sets.KindOf(word)
		if !known {
			return cli.UsageErrorf("%q: the kind must be vmpool or vmirs, and one set is scaled at a time", arg)
		}
		o.Kind, o.Name = &kind, name
	}
	if o.Name == "" || len(content.IsPathSegmentName(o.Name)) > 0 {
		return cli.UsageErrorf("%q is not NAME, vmpool/NAME or vmirs/NAME", arg)
	}
	switch {
	case !cmd.Flags().Changed("replicas"):
		return cli.UsageErrorf("--replicas is missing; it says how many machines there are to be")
	case o.Replicas < 0:
		return cli.UsageErrorf("--replicas must not be negative")
	case cmd.Flags().Changed("current-replicas") && o.Current < 0:
		return cli.UsageErrorf("--current-replicas must not be negative")
	}
	if err := o.CheckWait(o.DryRun); err != nil {
		return err
	}
	return o.Output.Validate()
}

// Run changes the size, waits for it if it is asked to, and prints.
func Run(ctx context.Context, o *Options) error {
	c, ns, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	if o.Kind == nil {
		kind, err := sets.Find(ctx, c, ns, o.Name)
		if err != nil {
			return err
		}
		o.Kind = &kind
	}
	if o.DryRun == cli.DryRunClient {
		return o.finish(ctx, c, ns)
	}
	request := sets.Request{Kind: *o.Kind, Namespace: ns, Name: o.Name, Replicas: o.Replicas, DryRun: o.DryRun ==
		cli.DryRunServer}
	if o.Current >= 0 {
		request.Current = &o.Current
	}
	if o.Wait {
		err := sets.CanBeReady(ctx, c, *o.Kind, ns, o.Name, int64(o.Replicas))
		if errors.Is(err, sets.ErrNeverReady) {
			return fmt.Errorf("%w; nothing was changed: scale it without --wait", err)
		}
		if err != nil {
			return err
		}
	}
	before, err := sets.Scale(ctx, c, request)
	if err != nil {
		o.interrupted(err, ns, false)
		return err
	}
	if note := o.kept(before); note != "" {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s\n", note)
	}
	if !o.Wait {
		return o.finish(ctx, c, ns)
	}
	if !o.Output.Given() {
		if err := o.report(); err != nil {
			return err
		}
	}
	var set *unstructured.Unstructured
	err = o.Until(ctx, o.Factory.IO, "waiting for "+o.Kind.Short+" "+o.Name, func(ctx context.Context) (err error) {
		set, err = sets.Wait(ctx, c, *o.Kind, ns, o.Name, int64(o.Replicas))
		return err
	})
	switch {
	case err != nil:
		o.interrupted(err, ns, true)
		return err
	case o.Output.Given():
		return o.Output.Print(set, o.Factory.IO.Out)
	}
	_, err = fmt.Fprintln(o.Factory.IO.Out, o.reached(sets.RowOf(set).Ready))
	return err
}

// kept returns a note for a pool that deletes none of the VMs that are too many.
func (o *Options) kept(before sets.Row) string {
	if before.KeepsExcess == "" || before.Current <= int64(o.Replicas) {
		return ""
	}
	return fmt.Sprintf("the scaleInStrategy of %s %s/%s is %s: it deletes no VM; delete those that are too many with "+
		"`%s delete`", o.Kind.Short, before.Namespace, before.Name, before.KeepsExcess, o.Factory.Program)
}

// interrupted prints what becomes of the request when the user has ended the command.
func (o *Options) interrupted(err error, namespace string, accepted bool) {
	o.Factory.IO.Requested(err, accepted, "scale of %s %s/%s to %d", o.Kind.Short, namespace, o.Name, o.Replicas)
}

// reached returns what is true after the wait, of so many that are ready.
func (o *Options) reached(ready int64) string {
	name := o.Kind.Short + "/" + o.Name
	switch {
	case ready < int64(o.Replicas):
		return fmt.Sprintf("%s has %d replicas, of which %d are ready: its template starts none", name, o.Replicas,
			ready)
	case o.Replicas == 0:
		return name + " has no replicas, and those that it had are gone"
	case o.Replicas == 1:
		return name + " has 1 replica, and it is ready"
	}
	return fmt.Sprintf("%s has %d replicas, and all are ready", name, o.Replicas)
}

// finish prints what was done, or the set as it is now; for a dry run as it would be.
func (o *Options) finish(ctx context.Context, c sets.API, ns string) error {
	if !o.Output.Given() {
		return o.report()
	}
	set, err := sets.Get(ctx, c, *o.Kind, ns, o.Name)
	if err != nil {
		return err
	}
	if o.DryRun != cli.DryRunNone {
		if err := unstructured.SetNestedField(set.Object, int64(o.Replicas), "spec", "replicas"); err != nil {
			return err
		}
	}
	return o.Output.Print(set, o.Factory.IO.Out)
}

// report prints what was done, as kubectl does.
func (o *Options) report() error {
	_, err := fmt.Fprintf(o.Factory.IO.Out, "%s/%s scaled to %d%s\n", o.Kind.Short, o.Name, o.Replicas,
		o.DryRun.Suffix())
	return err
}
