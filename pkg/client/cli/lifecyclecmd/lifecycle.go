// Package lifecyclecmd is virtctl's verbs that begin, interrupt and end the run of virtual machines: start, stop,
// restart, pause, unpause, reset, soft-reboot, migrate, migrate-cancel, evacuate-cancel and delete. Each takes several
// machines, by name or by selector, asks for them in parallel and reports them in order.
package lifecyclecmd

import (
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of the verbs; each has the flags of those that it uses.
type Options struct {
	Factory   *cli.Factory
	Output    *cli.Output
	Verb      lifecycle.Verb
	Names     []string
	Selection cli.Selection

	Paused       bool
	Force        bool
	GracePeriod  cli.Seconds
	NodeSelector map[string]string
	To           string
	Plan         bool
	WithDisks    bool
	DryRun       cli.DryRun

	cli.Waiting

	// undoes is the verb that this one takes back, for `undo`.
	undoes lifecycle.Verb
}

// unset is KubeVirt's default of --grace-period: what the VM's spec says.
const unset = -1

// NewCmdStart makes `virtctl start`.
func NewCmdStart(f *cli.Factory) *cobra.Command {
	o, cmd := newVerb(f, lifecycle.Start, "Start virtual machines", "", `
		virtctl start demo
		virtctl start demo db --wait --timeout 2m
		virtctl start -l app=web
		virtctl start demo --paused`)
	cmd.Flags().BoolVar(&o.Paused, "paused", false, "Leave the guest paused before its first instruction, for "+
		"unpause to let it run")
	return cmd
}

// NewCmdStop makes `virtctl stop`.
func NewCmdStop(f *cli.Factory) *cobra.Command {
	o, cmd := newVerb(f, lifecycle.Stop, "Stop virtual machines", "", `
		virtctl stop demo
		virtctl stop demo --wait
		virtctl stop demo --force --grace-period 0
		virtctl stop --all --yes`)
	o.addGraceFlags(cmd)
	return cmd
}

// NewCmdRestart makes `virtctl restart`.
func NewCmdRestart(f *cli.Factory) *cobra.Command {
	o, cmd := newVerb(f, lifecycle.Restart, "Restart virtual machines", "", `
		virtctl restart demo
		virtctl restart demo --wait
		virtctl restart demo --force`)
	o.addGraceFlags(cmd)
	return cmd
}

// NewCmdPause makes `virtctl pause`.
func NewCmdPause(f *cli.Factory) *cobra.Command {
	_, cmd := newVerb(f, lifecycle.Pause, "Pause virtual machines",
		"Pause the guests. Their state is kept in memory until they are unpaused.", `
		virtctl pause vm demo
		virtctl pause demo db
		virtctl pause vmi/demo`)
	return cmd
}

// NewCmdUnpause makes `virtctl unpause`.
func NewCmdUnpause(f *cli.Factory) *cobra.Command {
	_, cmd := newVerb(f, lifecycle.Unpause, "Let paused virtual machines run on", "", `
		virtctl unpause vm demo
		virtctl unpause --all`)
	return cmd
}

// NewCmdReset makes `virtctl reset`.
func NewCmdReset(f *cli.Factory) *cobra.Command {
	_, cmd := newVerb(f, lifecycle.Reset, "Press the reset button of virtual machines",
		"Reset the guests at once, as a machine's reset button does. The instance and its pod stay; the guest "+
			"loses what it has\nnot written to its disks.", `
		virtctl reset demo`)
	return cmd
}

// NewCmdSoftReboot makes `virtctl soft-reboot`.
func NewCmdSoftReboot(f *cli.Factory) *cobra.Command {
	_, cmd := newVerb(f, lifecycle.SoftReboot, "Ask guests to reboot",
		"Ask the guests to reboot by themselves, through the guest agent or ACPI. The instance and its pod stay.", `
		virtctl soft-reboot demo`)
	return cmd
}

// NewCmdMigrate makes `virtctl migrate`.
func NewCmdMigrate(f *cli.Factory) *cobra.Command {
	o, cmd := newVerb(f, lifecycle.Migrate, "Move running virtual machines to other nodes",
		"Move running guests to other nodes without stopping them. With --wait a migration that fails is an "+
			"error. With --plan\nnothing moves: it says where a guest could go and why not elsewhere, what would be "+
			"copied, and what holds for it.\nWith --with-disks disks on claims of one node only are copied to new "+
			"claims while the guest runs; the old claims\nare kept.", `
		virtctl migrate demo
		virtctl migrate demo --wait --timeout 10m
		virtctl migrate demo --to node2
		virtctl migrate demo --plan
		virtctl migrate demo --with-disks --to node2 --wait
		virtctl migrate demo --addedNodeSelector kubernetes.io/hostname=node2`)
	cmd.Flags().StringToStringVar(&o.NodeSelector, "addedNodeSelector", nil, "Labels (`KEY=VALUE,…`) that the new "+
		"node must have, besides what the VM's spec asks for; for this migration only")
	completioncmd.Flag(cmd, "addedNodeSelector", completioncmd.NodeLabels(f))
	cmd.Flags().StringVar(&o.To, "to", "", "Move to this `NODE`")
	completioncmd.Flag(cmd, "to", completioncmd.Nodes(f))
	cli.RefuseEmpty(cmd, "to")
	cmd.Flags().BoolVar(&o.WithDisks, "with-disks", false, "Copy the disks to new claims that the new node cannot use "+
		"as they are")
	cmd.Flags().BoolVar(&o.Plan, "plan", false, "Say what would be moved and where to, and move nothing")
	return cmd
}

// NewCmdMigrateCancel makes `virtctl migrate-cancel`.
func NewCmdMigrateCancel(f *cli.Factory) *cobra.Command {
	_, cmd := newVerb(f, lifecycle.MigrateCancel, "Cancel migrations of virtual machines",
		"Cancel the migrations of virtual machines. The guests run on where they are. With --wait it is an error "+
			"when a guest\nhad moved already. Disks that are being copied to other claims are left to volume migrate "+
			"--cancel.", `
		virtctl migrate-cancel demo
		virtctl migrate-cancel demo --wait`)
	return cmd
}

// NewCmdEvacuateCancel makes `virtctl evacuate-cancel`.
func NewCmdEvacuateCancel(f *cli.Factory) *cobra.Command {
	o, cmd := newVerb(f, lifecycle.EvacuateCancel, "Cancel the evacuation of virtual machines",
		"Cancel that virtual machines are to leave their node, as a drain asks of them. What is migrating already "+
			"goes\non: see migrate-cancel. With `node`, all machines that are to leave the nodes.", `
		virtctl evacuate-cancel vm demo
		virtctl evacuate-cancel vmi demo
		virtctl evacuate-cancel node node1`)
	machines, nodes := cmd.ValidArgsFunction, completioncmd.Nodes(f)
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, toComplete string,
	) ([]string, cobra.ShellCompDirective) {
		if o.byNode(args) {
			return nodes(cmd, args, toComplete)
		}
		return machines(cmd, args, toComplete)
	}
	return cmd
}

// NewCmdDelete makes `virtctl delete`.
func NewCmdDelete(f *cli.Factory) *cobra.Command {
	o, cmd := newVerb(f, lifecycle.Delete, "Delete virtual machines",
		"Delete virtual machines, after shutting down their guests. PersistentVolumeClaims stay, but those that "+
			"a VM owns:\nof its dataVolumeTemplates, and of snapshots that were restored to it. Whatever else the "+
			"guests wrote is lost.\n`kubectl delete vm` does the same.", `
		virtctl delete demo
		virtctl delete vmi/lone
		virtctl delete -l app=web --yes --wait`)
	cmd.Flags().Var(&o.GracePeriod, "grace-period", "Time the guest is given to shut down, in seconds or as a "+
		"duration; -1 is what its spec says")
	return cmd
}

func newVerb(
	f *cli.Factory, verb lifecycle.Verb, short, long, examples string,
) (*Options, *cobra.Command) {
	o := &Options{
		Factory:     f,
		Output:      cli.NewOutput(),
		Verb:        verb,
		GracePeriod: unset,
	}
	cmd := &cobra.Command{
		Use:               string(verb) + " NAME...",
		Short:             short,
		Long:              long,
		Example:           cli.Examples(f.Program, examples),
		Args:              func(cmd *cobra.Command, args []string) error { return o.Selection.Validate(cmd, args) },
		ValidArgsFunction: completioncmd.Machines(f, completioncmd.VMs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Names = args
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	if verb.OnInstance() || verb == lifecycle.EvacuateCancel || verb == lifecycle.Migrate ||
		verb == lifecycle.MigrateCancel {
		cmd.ValidArgsFunction = completioncmd.Machines(f, completioncmd.VMIs)
	}
	o.Selection.AddFlags(cmd)
	if _, ok := lifecycle.Until(verb, "", false); ok || verb == lifecycle.Migrate || verb == lifecycle.MigrateCancel {
		o.AddFlags(cmd, "it is done", 5*time.Minute)
	}
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return o, cmd
}

func (o *Options) addGraceFlags(cmd *cobra.Command) {
	cmd.Flags().Var(&o.GracePeriod, "grace-period", "Time the guest is given to shut down, in seconds or as a "+
		"duration; -1 is what its spec says")
	cmd.Flags().BoolVar(&o.Force, "force", false, "Do not wait for the guest to shut down; means --grace-period 0 "+
		"when that is not given")
}

func (o *Options) validate() error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if o.Force && o.GracePeriod == unset {
		o.GracePeriod = 0
	}
	if o.Plan && (o.Wait || o.DryRun != cli.DryRunNone) {
		return cli.UsageErrorf("--plan cannot be given with --wait or --dry-run: nothing will change")
	}
	if o.To != "" {
		if at, given := o.NodeSelector[corev1.LabelHostname]; given && at != o.To {
			return cli.UsageErrorf("--to %s and --addedNodeSelector %s=%s ask for two nodes", o.To,
				corev1.LabelHostname, at)
		}
		if o.NodeSelector == nil {
			o.NodeSelector = map[string]string{}
		}
		o.NodeSelector[corev1.LabelHostname] = o.To
	}
	return o.CheckWait(o.DryRun)
}

// options returns the request's options for the server.
func (o *Options) options() lifecycle.Options {
	l := lifecycle.Options{
		DryRun: o.DryRun == cli.DryRunServer, Paused: o.Paused, NodeSelector: o.NodeSelector, WithDisks: o.WithDisks,
	}
	if o.GracePeriod != unset {
		seconds := int64(o.GracePeriod)
		l.GracePeriodSeconds = &seconds
	}
	return l
}
