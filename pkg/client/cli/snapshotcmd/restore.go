package snapshotcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// RestoreOptions are those of `virtctl snapshot restore`.
type RestoreOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	Name    string
	Yes     bool
	Wait    bool
	Timeout cli.Timeout

	snapshot.RestoreOptions
}

// NewCmdRestore makes `virtctl snapshot restore`.
func NewCmdRestore(f *cli.Factory) *cobra.Command {
	o := &RestoreOptions{
		Factory: f, Output: cli.NewOutput(), Timeout: cli.Timeout{Duration: 10 * time.Minute, Unit: time.Second},
	}
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT",
		Short: "Make a virtual machine what it was when a snapshot was taken",
		Long: `Restore a snapshot over its VM, which must be stopped, or with --target as another VM. The VM's spec and volumes
are replaced by those of the snapshot, after a question; what was written since is lost to the VM.

A VM that the restore makes can be changed by JSON patches with --patch.`,
		Example: cli.Examples(f.Program, `
			virtctl snapshot restore before-upgrade --wait
			virtctl snapshot restore before-upgrade --stop --yes
			virtctl snapshot restore before-upgrade --target demo-copy
			virtctl snapshot restore before-upgrade --volume-restore-policy InPlace`),
		Args:              cli.Args(1, 1, "the name of a snapshot"),
		ValidArgsFunction: completioncmd.Snapshots(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = bare(args[0])
			if err := o.validate(); err != nil {
				return err
			}
			return Restore(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Target, "target", "", "The `VM` to restore; the snapshot's unless given")
	flags.BoolVar(&o.Stop, "stop", false, "Stop the VM first if it runs")
	flags.StringArrayVar(&o.Patches, "patch", nil,
		`JSON `+"`PATCH`"+` of a VM that is made, such as {"op": "add", "path": …} (can be repeated)`)
	flags.StringVar(&o.VolumePolicy, "volume-restore-policy", "",
		"How claims are named, a `POLICY`: "+strings.Join(snapshot.VolumePolicies(), ", "))
	flags.BoolVar(&o.Keep, "keep", false, "Have the restored volumes stay when the VM is deleted")
	flags.BoolVar(&o.Wait, "wait", false, "Wait until it is restored")
	flags.Var(&o.Timeout, "timeout", "How long to wait with --wait; 0 is no limit")
	flags.BoolVarP(&o.Yes, "yes", "y", false, "Do not ask")
	completioncmd.Flag(cmd, "target", completioncmd.VMs(f, -1))
	cli.CompleteFlag(cmd, "volume-restore-policy", snapshot.VolumePolicies()...)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *RestoreOptions) validate() error {
	if err := checkName("snapshot", o.Name); err != nil {
		return err
	}
	if o.Target != "" {
		if o.Target = strings.TrimPrefix(o.Target, "vm/"); checkName("VM", o.Target) != nil {
			return checkName("VM", o.Target)
		}
	}
	switch policies := snapshot.VolumePolicies(); {
	case o.VolumePolicy != "" && !slices.Contains(policies, o.VolumePolicy):
		return cli.UsageErrorf("--volume-restore-policy: %q is not one of %s", o.VolumePolicy,
			strings.Join(policies, ", "))
	case o.Wait && o.DryRun != cli.DryRunNone:
		return cli.UsageErrorf("--wait and --dry-run cannot be given together: a dry run makes nothing to wait for")
	}
	return o.Output.Validate()
}

// Restore asks for the restore, and with Wait waits until it is done.
func Restore(ctx context.Context, o *RestoreOptions) error {
	namespace, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	plan, err := snapshot.Look(ctx, c, namespace, o.Name, o.RestoreOptions)
	if err != nil {
		return err
	}
	if plan.Exists && o.DryRun == cli.DryRunNone {
		if err := confirm(ctx, o.Factory, o.Yes, question(namespace, plan)); err != nil {
			return err
		}
	}
	r := snapshot.NewRestore(namespace, "restore-"+o.Name+"-"+o.Factory.RandomName(5), o.Name, plan.Target,
		o.RestoreOptions)
	if o.DryRun != cli.DryRunClient {
		if r, err = snapshot.CreateRestore(ctx, c, r, o.DryRun == cli.DryRunServer); err != nil {
			return err
		}
	}
	if !o.Output.Given() {
		err := created(o.Factory, "virtualmachinerestore.snapshot.kubevirt.io", r.Name, o.DryRun)
		if err != nil {
			return err
		}
	}
	if o.Wait {
		kind := r.TypeMeta
		err := waiting(ctx, o.Factory, o.Timeout, "restore "+r.Name,
			func(ctx context.Context, tell func(string)) error {
				done, err := snapshot.WaitRestore(ctx, c, namespace, r.Name, tell)
				if done != nil {
					r = done
					r.TypeMeta = kind
				}
				return err
			})
		if err != nil {
			return err
		}
	}
	if o.Output.Given() {
		return o.Output.Print(r, o.Factory.IO.Out)
	}
	return nil
}

// question says what a restore replaces.
func question(namespace string, p *snapshot.Plan) string {
	text := fmt.Sprintf("The spec of VM %s/%s", namespace, p.Target)
	if len(p.Volumes) > 0 {
		text += " and its volumes " + strings.Join(p.Volumes, ", ")
	}
	text += fmt.Sprintf(" are replaced by those of snapshot %s of %s.", p.Snapshot.Name,
		p.Snapshot.CreationTimestamp.UTC().Format(time.RFC3339))
	if len(p.Loses) > 0 {
		text += " The snapshot does not have its volumes " + strings.Join(p.Loses, ", ") + "."
	}
	if p.Runs {
		text += " Its guest is stopped first."
	}
	if p.Resumes {
		text += " When it is started, its guest resumes where it was when the snapshot was taken."
	}
	return text + " Restore it?"
}
