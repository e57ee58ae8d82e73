package snapshotcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
)

// RestoreOptions are the options of `virtctl snapshot restore`.
type RestoreOptions struct {
	cli.Creation

	Name string
	Yes  bool

	snapshot.RestoreOptions
}

// NewCmdRestore makes `virtctl snapshot restore`.
func NewCmdRestore(f *cli.Factory) *cobra.Command {
	o := &RestoreOptions{Creation: cli.NewCreation(f)}
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT",
		Short: "Make a virtual machine what it was when a snapshot was taken",
		Long: `Restore a snapshot over its VM, which must be stopped, or with --target as another VM. The VM's spec and volumes
are replaced by those of the snapshot, after a question; what was written since is lost to the VM. A VM that does not
exist is made, and is off until it is started.

With --keep the claims and the spec that the VM had stay, and "virtctl undo" gives them back to it. The claims that
are kept have the label restore.virtkit.io/replaced-by until they are deleted or in use again. Without --keep the old
spec is lost, the DataVolumes of the VM's dataVolumeTemplates and the claim of its TPM and EFI variables are deleted
unless another VM uses them, and all other claims stay; those of an earlier restore are deleted with the VM.

A VM that the restore makes can be changed by JSON patches with --patch.`,
		Example: cli.Examples(f.Program, `
			virtctl snapshot restore before-upgrade --wait
			virtctl snapshot restore before-upgrade --stop --yes
			virtctl snapshot restore before-upgrade --keep --wait && virtctl undo
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
	flags.BoolVar(&o.Keep, "keep", false, "Keep the claims and the spec that are replaced, for undo")
	flags.StringVar(&o.Ownership, "volume-ownership-policy", "",
		"Whether the restored claims go with the VM, a `POLICY`: "+strings.Join(snapshot.OwnershipPolicies(), ", "))
	o.AddFlags(cmd, "it is restored", 10*time.Minute)
	flags.BoolVarP(&o.Yes, "yes", "y", false, "Do not ask")
	completioncmd.Flag(cmd, "target", completioncmd.VMs(f, -1))
	cli.RefuseEmpty(cmd, "target", "volume-restore-policy", "volume-ownership-policy")
	cli.CompleteFlag(cmd, "volume-restore-policy", snapshot.VolumePolicies()...)
	cli.CompleteFlag(cmd, "volume-ownership-policy", snapshot.OwnershipPolicies()...)
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
	for _, patch := range o.Patches {
		var operation struct{ Op, Path string }
		if err := json.Unmarshal([]byte(patch), &operation); err != nil || operation.Op == "" || operation.Path == "" {
			return cli.UsageErrorf("--patch: %q is no operation of a JSON patch; write one such as "+
				`{"op": "replace", "path": "/spec/template/spec/hostname", "value": "copy"}`, patch)
		}
	}
	switch policies := snapshot.VolumePolicies(); {
	case o.VolumePolicy != "" && !slices.Contains(policies, o.VolumePolicy):
		return cli.UsageErrorf("--volume-restore-policy: %q is not one of %s", o.VolumePolicy,
			strings.Join(policies, ", "))
	case o.Ownership != "" && !slices.Contains(snapshot.OwnershipPolicies(), o.Ownership):
		return cli.UsageErrorf("--volume-ownership-policy: %q is not one of %s", o.Ownership,
			strings.Join(snapshot.OwnershipPolicies(), ", "))
	case o.Keep && o.VolumePolicy == string(snapshotv1beta1.VolumeRestorePolicyInPlace):
		return cli.UsageErrorf("--keep cannot be given with --volume-restore-policy InPlace, which gives the names " +
			"of the old claims to the new ones")
	}
	return o.Validate()
}

// Restore asks for the restore, and with Wait waits until it is done.
func Restore(ctx context.Context, o *RestoreOptions) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	plan, err := snapshot.Look(ctx, c, namespace, o.Name, o.RestoreOptions)
	if err != nil {
		return err
	}
	if o.Keep && !plan.Exists {
		return fmt.Errorf("--keep keeps what is replaced, and there is no VM %s/%s yet: the restore makes it; leave "+
			"--keep out", namespace, plan.Target)
	}
	if !plan.Exists {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: there is no VM %s/%s; the restore makes it, and it is off until it is "+
			"started\n", namespace, plan.Target)
	}
	// A VM that is gone loses nothing, but claims of the names that it had may be there.
	if (plan.Exists || plan.InPlace.Says("") != "") && o.DryRun == cli.DryRunNone {
		o.SnapshotUID = plan.Snapshot.UID
		if err := o.confirm(ctx, namespace, plan); err != nil {
			return err
		}
		if !o.Yes { // it may have changed while the question was open
			if plan, err = snapshot.Look(ctx, c, namespace, o.Name, o.RestoreOptions); err != nil {
				return err
			}
		}
	}
	r, err := lifecyclecmd.RestoreKind.Send(ctx, c, &o.Creation, snapshot.NewRestore(namespace,
		"restore-"+o.Name+"-"+o.Factory.RandomName(5), o.Name, plan.Target, o.RestoreOptions))
	if err != nil {
		return err
	}
	if plan.Exists && o.DryRun == cli.DryRunNone {
		lifecyclecmd.NoteRestore(o.Factory, r, plan.UID, o.Keep, "")
	}
	return lifecyclecmd.RestoreKind.Follow(ctx, c, &o.Creation, r, snapshot.ReachedRestore)
}

// confirm asks before a VM is replaced, or claims are.
func (o *RestoreOptions) confirm(ctx context.Context, namespace string, p *snapshot.Plan) error {
	replaced := replaces(namespace, p)
	return confirm(ctx, o.Factory, o.Yes, "the "+strings.TrimSuffix(replaced, "."), "The "+replaced+" Restore it?")
}

// replaces returns what a restore replaces, in sentences; the first continues one that ends with "the".
func replaces(namespace string, p *snapshot.Plan) string {
	if !p.Exists {
		return fmt.Sprintf("VM %s/%s is made of snapshot %s. %s", namespace, p.Target, p.Snapshot.Name,
			p.InPlace.Says(p.Target))
	}
	text := fmt.Sprintf("spec of VM %s/%s", namespace, p.Target)
	if len(p.Volumes) > 0 {
		text += " and its volumes " + p.InClaims()
	}
	text += fmt.Sprintf(" are replaced by those of snapshot %s of %s.", p.Snapshot.Name,
		p.Snapshot.CreationTimestamp.UTC().Format(time.RFC3339))
	if says := p.InPlace.Says(p.Target); says != "" {
		text += " " + says
	}
	if len(p.Loses) > 0 {
		text += " The snapshot does not have its volumes " + strings.Join(p.Loses, ", ") + "."
	}
	if p.Runs {
		text += " Its guest is stopped first, and the VM stays off until it is started."
	}
	if p.Resumes {
		text += " When it is started, its guest resumes where it was when the snapshot was taken."
	}
	return text
}
