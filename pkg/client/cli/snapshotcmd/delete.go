package snapshotcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// DeleteOptions are the options of `virtctl snapshot delete`.
type DeleteOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	Names   []string
	// Selector, Machine and All choose snapshots instead of Names.
	Selector, Machine string
	All               bool
	Yes               bool
}

// NewCmdDelete makes `virtctl snapshot delete`.
func NewCmdDelete(f *cli.Factory) *cobra.Command {
	o := &DeleteOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "delete (NAME... | -l SELECTOR | --vm VM | --all)",
		Short: "Delete snapshots",
		Long: `Delete snapshots, and what they have of volumes unless their deletion policy is Retain. It asks first; where nobody
can be asked, --yes must be given.`,
		Example: cli.Examples(f.Program, `
			virtctl snapshot delete before-upgrade
			virtctl snapshot delete --vm demo --yes
			virtctl snapshot delete -l app=web --dry-run`),
		Args:              cli.Args(0, -1, "the names of snapshots"),
		ValidArgsFunction: completioncmd.Snapshots(f, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return Delete(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.Selector, "selector", "l", "", "Choose by a label `SELECTOR` of snapshots, as in -l app=web")
	flags.StringVar(&o.Machine, "vm", "", "Choose the snapshots of a `VM`")
	flags.BoolVar(&o.All, "all", false, "Choose all snapshots of the namespace")
	flags.BoolVarP(&o.Yes, "yes", "y", false, "Do not ask")
	completioncmd.Flag(cmd, "vm", completioncmd.VMs(f, -1))
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *DeleteOptions) complete(cmd *cobra.Command, args []string) error {
	chosen := o.Selector != "" || o.Machine != "" || o.All
	for _, arg := range args {
		name := bare(arg)
		if err := checkName("snapshot", name); err != nil {
			return err
		}
		o.Names = append(o.Names, name)
	}
	switch {
	case chosen && len(args) > 0:
		return cli.UsageErrorf("give names, or -l, --vm or --all, not both")
	case o.All && (o.Selector != "" || o.Machine != ""):
		return cli.UsageErrorf("--all chooses all snapshots; give it without -l and --vm")
	case !chosen && len(args) == 0:
		return cli.UsageErrorf("%s needs the name of a snapshot, -l SELECTOR, --vm VM or --all", cmd.CommandPath())
	}
	if err := cli.CheckSelector(o.Selector); err != nil {
		return err
	}
	return o.Output.Validate()
}

// Delete asks, and deletes.
func Delete(ctx context.Context, o *DeleteOptions) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	found, errs := o.find(ctx, c, namespace)
	if len(found) == 0 {
		return utilerrors.NewAggregate(errs)
	}
	var names []string
	for _, s := range found {
		names = append(names, s.Name)
	}
	resumes, err := snapshot.Resumes(ctx, c, namespace, found)
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, vm := range resumes[name] {
			fmt.Fprintf(o.Factory.IO.ErrOut, "note: VM %s goes on from the memory of snapshot %s when it is started "+
				"next; without the snapshot it does not start until it is told to boot: `%s`\n", vm, name,
				savedmemory.Forget(namespace, vm))
		}
	}
	if o.DryRun == cli.DryRunNone {
		if err := o.confirm(ctx, names, namespace); err != nil {
			return err
		}
	}
	var gone []runtime.Object
	for _, s := range found {
		if o.DryRun != cli.DryRunClient {
			if err := snapshot.Delete(ctx, c, namespace, s.Name, s.UID, o.DryRun == cli.DryRunServer); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		gone = append(gone, s)
		if o.Output.Given() {
			continue
		}
		_, err := fmt.Fprintf(o.Factory.IO.Out, "virtualmachinesnapshot.snapshot.kubevirt.io %q deleted%s\n", s.Name,
			o.DryRun.Suffix())
		if err != nil {
			return err
		}
	}
	if o.Output.Given() {
		if err := o.Output.PrintAll(gone, len(o.Names) == 1, o.Factory.IO.Out); err != nil {
			return err
		}
	}
	return utilerrors.NewAggregate(errs)
}

// confirm asks before snapshots are deleted.
func (o *DeleteOptions) confirm(ctx context.Context, names []string, namespace string) error {
	what := nameAll(names, namespace)
	return confirm(ctx, o.Factory, o.Yes, "this deletes "+what, "Delete "+what+"?")
}

// nameAll names snapshots in a sentence.
func nameAll(names []string, namespace string) string {
	what := "snapshots"
	if len(names) == 1 {
		what = "snapshot"
	}
	return fmt.Sprintf("%s %s of namespace %s", what, strings.Join(names, ", "), namespace)
}

// find returns the snapshots to delete, and an error for each name that cannot be read.
func (o *DeleteOptions) find(ctx context.Context, c *client.Client, namespace string) (
	found []*snapshotv1beta1.VirtualMachineSnapshot, errs []error,
) {
	for _, name := range o.Names {
		s, err := snapshot.Get(ctx, c, namespace, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, s)
	}
	if len(o.Names) > 0 {
		return found, errs
	}
	list, err := snapshot.List(ctx, c, namespace, o.Selector, o.Machine)
	if err != nil {
		return nil, []error{err}
	}
	// A clone that is under way needs the snapshot that it has made, and removes it.
	list.Items = slices.DeleteFunc(list.Items, func(s snapshotv1beta1.VirtualMachineSnapshot) bool {
		return snapshot.CloneOf(&s) != ""
	})
	if len(list.Items) == 0 {
		return nil, []error{fmt.Errorf("snapshots to delete %w in namespace %q", action.ErrNotFound, namespace)}
	}
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}
