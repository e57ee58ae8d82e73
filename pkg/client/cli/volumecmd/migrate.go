package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// MigrateOptions are the options of `virtctl volume migrate`.
type MigrateOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// Machine is the argument that names it.
	Machine string
	Move    volume.MoveOptions
	// Plan only says what would be copied; Cancel takes back what is being copied.
	Plan, Cancel bool

	cli.Waiting
	mode, access string
}

// volumeModes are the values of --volume-mode, accessModes those of --access-mode.
var (
	volumeModes = []string{"filesystem", "block"}
	accessModes = []string{
		string(corev1.ReadWriteOnce), string(corev1.ReadWriteMany), string(corev1.ReadWriteOncePod),
	}
)

// NewCmdMigrate makes `virtctl volume migrate`.
func NewCmdMigrate(f *cli.Factory) *cobra.Command {
	o := &MigrateOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "migrate VM [VOLUME...]",
		Short: "Copy disks of a running virtual machine to other storage",
		Long: `Copy disks of a running virtual machine to new PersistentVolumeClaims of another storage class. The guest
migrates to another node meanwhile and runs on. Without VOLUME these are all its disks that can be copied.

The new claims are as large as the disks need. Their volume mode and access modes are those of the old claims, or
what CDI's StorageProfile of the class has, unless flags say them. The old claims are kept: delete them when you are
sure, or have annotation virtkit.io/copied-claims of the VM or the class say Delete. While disks are copied,
--cancel takes that back, as it does for a VM whose guest ended too early.`,
		Example: cli.Examples(f.Program, `
			virtctl volume migrate demo --storage-class fast --plan
			virtctl volume migrate demo --storage-class fast --wait
			virtctl volume migrate demo data --storage-class fast --volume-mode block --access-mode ReadWriteOnce
			virtctl volume migrate demo --cancel`),
		Args:              cli.Args(1, -1, "the name of a VM, and perhaps of volumes"),
		ValidArgsFunction: completioncmd.ManyVolumes(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Machine, o.Move.Volumes = args[0], args[1:]
			if err := o.validate(); err != nil {
				return err
			}
			return RunMigrate(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Move.To.Class, "storage-class", "", "Storage class of the new claims")
	flags.StringVar(&o.mode, "volume-mode", "", "Volume mode of the new claims: filesystem or block")
	flags.StringVar(&o.access, "access-mode", "", "Access mode of the new claims: "+strings.Join(accessModes, ", "))
	flags.StringVar(&o.Move.Claim, "claim-name", "", "Name of the new claim, of one volume; made up unless given")
	flags.BoolVar(&o.Plan, "plan", false, "Print what would be copied, and change nothing")
	flags.BoolVar(&o.Cancel, "cancel", false, "Give the VM the claims again from which disks are being copied")
	cli.CompleteFlag(cmd, "volume-mode", volumeModes...)
	cli.CompleteFlag(cmd, "access-mode", accessModes...)
	completioncmd.Flag(cmd, "storage-class", completioncmd.StorageClasses(f))
	o.AddFlags(cmd, "the guest uses the new claims", time.Hour)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *MigrateOptions) validate() error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if err := o.CheckWait(o.DryRun); err != nil {
		return err
	}
	o.mode = strings.ToLower(o.mode)
	switch {
	case o.Cancel && (o.Plan || o.Move.To.Class != "" || o.mode != "" || o.access != "" || o.Move.Claim != ""):
		return cli.UsageErrorf("--cancel takes back what is being copied; leave out the flags of new claims and --plan")
	case o.Cancel && len(o.Move.Volumes) > 0:
		return cli.UsageErrorf("--cancel takes back all that is being copied; name the VM alone")
	case o.Cancel:
		return nil
	case o.Plan && (o.Wait || o.DryRun != cli.DryRunNone):
		return cli.UsageErrorf("--plan changes nothing; leave out --wait and --dry-run")
	case o.Move.To.Class == "":
		return cli.UsageErrorf("to which storage? Name a class with --storage-class; `kubectl get storageclass` " +
			"lists them")
	case o.mode != "" && !slices.Contains(volumeModes, o.mode):
		return cli.UsageErrorf("--volume-mode: %q is not one of %s", o.mode, strings.Join(volumeModes, ", "))
	case o.access != "" && !slices.Contains(accessModes, o.access):
		return cli.UsageErrorf("--access-mode: %q is not one of %s", o.access, strings.Join(accessModes, ", "))
	case o.Move.Claim != "" && len(o.Move.Volumes) != 1:
		return cli.UsageErrorf("--claim-name is of one volume; name the volume")
	case o.Move.Claim != "" && len(validation.IsDNS1123Subdomain(o.Move.Claim)) > 0:
		return cli.UsageErrorf("--claim-name: %q is not a name", o.Move.Claim)
	}
	for i, name := range o.Move.Volumes {
		if slices.Contains(o.Move.Volumes[:i], name) {
			return cli.UsageErrorf("volume %s is named twice", name)
		}
	}
	if o.mode != "" {
		o.Move.To.Mode = corev1.PersistentVolumeMode(strings.ToUpper(o.mode[:1]) + o.mode[1:])
	}
	if o.access != "" {
		o.Move.To.Access = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(o.access)}
	}
	return nil
}

// RunMigrate plans, requests, or takes back the copy, and with Wait waits for its end.
func RunMigrate(ctx context.Context, o *MigrateOptions) error {
	c, t, err := o.Factory.Machine(o.Machine)
	if err != nil {
		return err
	}
	if t.Instance {
		return cli.UsageErrorf("%s: the claims are changed in a VM's spec; name the VM", o.Machine)
	}
	o.Move.Back = fmt.Sprintf("`%s volume migrate %s --cancel%s`", o.Factory.Program, t.Name,
		o.Factory.InNamespace(t.Namespace))
	if o.Cancel {
		return o.cancel(ctx, c, t)
	}
	m, err := volume.Plan(ctx, c, t.Namespace, t.Name, o.Move)
	if err != nil {
		return o.Factory.NotRunning(ctx, c, t, err)
	}
	if err := o.Factory.CheckStorageClass(ctx, c, o.Move.To.Class); err != nil {
		return err
	}
	if o.Plan {
		return o.plan(ctx, c, m)
	}
	if o.DryRun != cli.DryRunClient {
		left, err := m.Start(ctx, c, o.DryRun == cli.DryRunServer)
		if err != nil {
			o.left(err, left)
			return err
		}
	}
	return o.started(ctx, c, m)
}

// left says what became of the new claims when the copy was not requested.
func (o *MigrateOptions) left(err error, left []string) {
	for _, text := range left {
		if errors.Is(err, context.Canceled) {
			o.Factory.IO.Interrupted(err, "%s", text)
			continue
		}
		o.note(text)
	}
}

// started says what was requested, waits for it, and prints the report.
func (o *MigrateOptions) started(ctx context.Context, c *client.Client, m *volume.Moving) error {
	o.note(m.Notes...)
	for _, move := range m.Moves {
		o.say("volume %s of %s: copied from claim %s to claim %s%s\n", move.Volume, m.VM.Name, move.From.Name,
			move.To.Name, o.DryRun.Suffix())
	}
	state := volume.Requested
	if o.DryRun != cli.DryRunNone {
		state = volume.Planned
	}
	if o.Wait {
		err := o.Stages(ctx, o.Factory.IO, "waiting for disks of "+m.VM.Name,
			func(ctx context.Context, report func(string)) error { return volume.AwaitMoved(ctx, c, m, report) })
		if err != nil {
			o.Factory.IO.Requested(err, true, "the copy of disks of VM %s/%s", m.VM.Namespace, m.VM.Name)
			o.Factory.IO.Interrupted(err, "%s takes it back", o.Move.Back)
			return err
		}
		state = volume.Moved
		for _, move := range m.Moves {
			o.say("volume %s of %s: the guest uses claim %s\n", move.Volume, m.VM.Name, move.To.Name)
		}
	}
	if o.DryRun == cli.DryRunNone {
		o.kept(m)
	}
	return o.print(m.Report(state))
}

// kept names the old claims, with the command that removes them, or what does.
func (o *MigrateOptions) kept(m *volume.Moving) {
	when := "delete it when you are sure"
	if !o.Wait {
		when = "delete it once the guest uses the new one"
	}
	for _, move := range m.Moves {
		if move.Deleted {
			o.note(fmt.Sprintf("claim %s is deleted once the guest uses the new one and nobody else has it, as "+
				"annotation %s says", move.From.Name, volumemigration.CopiedClaimsAnnotation))
			continue
		}
		kind := "pvc"
		if move.DataVolume {
			kind = "datavolume"
		}
		o.note(fmt.Sprintf("claim %s is kept%s; %s: `kubectl delete %s %s -n %s`", move.From.Name,
			move.Unless(), when, kind, move.From.Name, m.VM.Namespace))
	}
}

// plan prints what would be copied.
func (o *MigrateOptions) plan(ctx context.Context, c *client.Client, m *volume.Moving) error {
	facts, err := migrate.Gather(ctx, c, m.VM.Namespace, m.VM.Name, false)
	if err != nil {
		return err
	}
	nodes := migrate.NewPlan(facts).Nodes
	if facts.Nodes != nil && !slices.ContainsFunc(nodes, func(n migrate.Node) bool { return n.Fits }) {
		text := "no other node takes the guest now, and the copy waits for one"
		for _, n := range nodes {
			text += fmt.Sprintf("; %s: %s", n.Name, strings.Join(n.Reasons, ", "))
		}
		m.Notes = append(m.Notes, text)
	}
	report := m.Report(volume.Planned)
	o.note(report.Notes...)
	if o.Output.Given() {
		return o.print(report)
	}
	w := cli.NewTable(o.Factory.IO.Out)
	w.Row("VOLUME", "DISK", "FROM", "CLASS", "SIZE", "MODE", "ACCESS", "TO", "CLASS", "SIZE", "MODE", "ACCESS")
	for _, v := range report.Volumes {
		disk := "unknown"
		if v.Bytes > 0 {
			disk = migrate.Bytes(uint64(v.Bytes))
		}
		row := []string{v.Volume, disk}
		for _, claim := range []volume.MovedClaim{v.From, v.To} {
			row = append(row, claim.Name, claim.StorageClass, claim.Size, claim.VolumeMode,
				strings.Join(claim.AccessModes, ","))
		}
		w.Row(row...)
	}
	return w.Flush()
}

// cancel takes back what is being copied.
func (o *MigrateOptions) cancel(ctx context.Context, c *client.Client, t cli.Target) error {
	state, err := volume.Cancel(ctx, c, t.Namespace, t.Name, o.DryRun != cli.DryRunNone)
	if err != nil {
		o.Factory.IO.Requested(err, false, "the cancellation of the copy of disks of VM %s/%s", t.Namespace, t.Name)
		return err
	}
	report := volume.CancelReport(t.Namespace, t.Name, state)
	for _, v := range report.Volumes {
		o.say("volume %s of %s: on claim %s again, not on %s%s\n", v.Volume, t.Name, v.From.Name, v.To.Name,
			o.DryRun.Suffix())
	}
	if o.Wait {
		err := o.Until(ctx, o.Factory.IO, "waiting until no disk of "+t.Name+" is copied",
			func(ctx context.Context) error { return volume.AwaitCancelled(ctx, c, t.Namespace, t.Name) })
		if err != nil {
			o.Factory.IO.Requested(err, true, "the cancellation of the copy of disks of VM %s/%s", t.Namespace, t.Name)
			return err
		}
	}
	for _, v := range report.Volumes {
		if o.DryRun == cli.DryRunNone {
			o.note(fmt.Sprintf("claim %s has a part of the data at most; if it is of no use: `kubectl delete "+
				"pvc %s -n %s`", v.To.Name, v.To.Name, t.Namespace))
		}
	}
	return o.print(report)
}

// say prints for people, unless a program reads the report.
func (o *MigrateOptions) say(format string, args ...any) {
	if !o.Output.Given() {
		fmt.Fprintf(o.Factory.IO.Out, format, args...)
	}
}

func (o *MigrateOptions) note(texts ...string) {
	for _, text := range texts {
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s\n", text)
	}
}

func (o *MigrateOptions) print(report *volume.MoveReport) error {
	if !o.Output.Given() {
		return nil
	}
	return o.Output.Print(report, o.Factory.IO.Out)
}
