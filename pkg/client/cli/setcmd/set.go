// Package setcmd is `virtctl set`: changes one thing of a VM, and says when that takes effect.
package setcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/set"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/diffcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
)

// Options of the commands.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// VM is the argument that names it, Field what is changed, and Value the argument with what it is to be.
	VM, Field, Value string
	// CPU are the flags of `set cpu`.
	CPU    set.CPU
	Change set.Change
}

// NewCmdSet makes `virtctl set` with its commands.
func NewCmdSet(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "set",
		Short: "Change the size, the rate limits, the run strategy or the instance type of a virtual machine",
		Long: `Change one thing of a virtual machine, and say when that takes effect: live (at once), hotplug (at once,
by plugging), migration (when the guest has moved), restart (when the guest, which runs, is started again) or
start (when it is started). With --dry-run only that is said.`,
	})
	cmd.AddCommand(newCmdCPU(f), newCmd(f, field{
		use: "memory VM QUANTITY", short: "Change how much memory a virtual machine has", value: "a quantity of memory",
		example: "virtctl set memory web 4Gi\nvirtctl set memory web 4Gi --dry-run", change: set.SetMemory,
	}), newCmd(f, field{
		use: "run-strategy VM STRATEGY", short: "Change when a virtual machine has a guest", value: "a run strategy",
		example: "virtctl set run-strategy web Always", change: set.SetRunStrategy,
		values: cobra.FixedCompletions(set.RunStrategies(), cobra.ShellCompDirectiveNoFileComp),
	}), newCmd(f, field{
		use: "eviction-strategy VM STRATEGY", short: "Change what becomes of a guest whose node is drained",
		value: "an eviction strategy", change: set.SetEvictionStrategy,
		example: "virtctl set eviction-strategy web LiveMigrate",
		values:  cobra.FixedCompletions(set.EvictionStrategies(), cobra.ShellCompDirectiveNoFileComp),
	}), newCmd(f, field{
		use: "instancetype VM [KIND/]NAME", short: "Change the instance type of a virtual machine, or take it away",
		value: "an instance type", change: set.SetInstancetype, values: completioncmd.Instancetypes(f),
		example: "virtctl set instancetype web u1.large\nvirtctl set instancetype web ''\n" +
			"virtctl set instancetype web virtualmachineinstancetype/small",
	}), newCmd(f, field{
		use: "preference VM [KIND/]NAME", short: "Change the preference of a virtual machine, or take it away",
		value: "a preference", change: set.SetPreference, values: completioncmd.Preferences(f),
		example: "virtctl set preference web fedora\nvirtctl set preference web ''",
	}), newCmdQoS(f))
	return cmd
}

// field is a command that changes one field.
type field struct {
	use, short, value, example string
	change                     func(string) (set.Change, error)
	// values completes the value; nil for none.
	values cobra.CompletionFunc
}

func newCmd(f *cli.Factory, of field) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use: of.use, Short: of.short, Example: cli.Examples(f.Program, of.example),
		Args:              cli.Args(2, 2, "the name of a VM and "+of.value),
		ValidArgsFunction: complete(f, of.values),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := of.change(args[1])
			if err != nil {
				return cli.UsageErrorf("%s", err)
			}
			o.VM, o.Field, o.Change, o.Value = args[0], cmd.Name(), change, args[1]
			return Run(cmd.Context(), o)
		},
	}
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func newCmdCPU(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(), Field: "cpu"}
	cmd := &cobra.Command{
		Use:   "cpu VM [VCPUS]",
		Short: "Change how many CPUs a virtual machine has",
		Long: `Change how many CPUs a virtual machine has. VCPUS is the number of all; the sockets follow from it, with
the cores and threads that each has. A guest that runs can have more sockets; other cores and threads wait for its
next start.`,
		Example: cli.Examples(f.Program, `
			virtctl set cpu web 4
			virtctl set cpu web --sockets 2 --cores 4
			virtctl set cpu web 8 --cores 4 --dry-run`),
		Args:              cli.Args(1, 2, "the name of a VM and a number of vCPUs"),
		ValidArgsFunction: complete(f, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.cpu(cmd, args); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.Uint32Var(&o.CPU.Sockets, "sockets", 0, "`NUMBER` of sockets")
	flags.Uint32Var(&o.CPU.Cores, "cores", 0, "`NUMBER` of cores of a socket")
	flags.Uint32Var(&o.CPU.Threads, "threads", 0, "`NUMBER` of threads of a core")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

// maxVCPUs bounds what is taken for a number of vCPUs; what a guest can have is the server's to say.
const maxVCPUs = 1 << 16

// cpu reads the arguments of `set cpu`.
func (o *Options) cpu(cmd *cobra.Command, args []string) error {
	o.VM = args[0]
	for name, n := range map[string]uint32{"sockets": o.CPU.Sockets, "cores": o.CPU.Cores, "threads": o.CPU.Threads} {
		if cmd.Flags().Changed(name) && (n == 0 || n > maxVCPUs) {
			return cli.UsageErrorf("--%s must be from 1 to %d", name, maxVCPUs)
		}
	}
	if len(args) > 1 {
		n, err := strconv.ParseUint(args[1], 10, 32)
		if err != nil || n == 0 || n > maxVCPUs {
			return cli.UsageErrorf("%q is no number of vCPUs", args[1])
		}
		o.CPU.VCPUs = uint32(n)
	}
	change, err := set.SetCPU(o.CPU)
	if err != nil {
		return cli.UsageErrorf("%s", err)
	}
	o.Change = change
	return nil
}

// complete completes the VM, then the value.
func complete(f *cli.Factory, values cobra.CompletionFunc) cobra.CompletionFunc {
	vms := completioncmd.VMs(f, 1)
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return vms(cmd, args, toComplete)
		case len(args) == 1 && values != nil:
			return values(cmd, nil, toComplete)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// Run makes the change and prints what came of it.
func Run(ctx context.Context, o *Options) error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	target, err := o.Factory.Target(o.VM)
	if err != nil {
		return err
	}
	if target.Instance {
		return cli.UsageErrorf("%q: only a VM is changed, its instance follows; say vm/%s", o.VM, target.Name)
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if err := o.checkReferent(ctx, c, target); err != nil {
		return err
	}
	mode := map[cli.DryRun]set.Mode{cli.DryRunServer: set.Ask, cli.DryRunClient: set.Local}[o.DryRun]
	result, err := set.Run(ctx, c, target.Namespace, target.Name, o.Change, mode)
	if wrong := (*set.ValueError)(nil); errors.As(err, &wrong) {
		return cli.UsageErrorf("%s", err)
	}
	if err != nil {
		return o.conflict(target, err)
	}
	if o.DryRun == cli.DryRunNone && len(result.Verdict.Changes) > 0 {
		lifecyclecmd.Note(o.Factory, lifecycle.Set, lifecycle.Target{Namespace: target.Namespace, Name: target.Name})
	}
	if err := o.print(target, result); err != nil {
		return err
	}
	if o.DryRun == cli.DryRunNone {
		diffcmd.HintRestart(o.Factory, target, result.Verdict.Changes)
	}
	return nil
}

// checkReferent refuses an instance type or preference that is not there: at its next start the VM would not run.
func (o *Options) checkReferent(ctx context.Context, c *client.Client, target cli.Target) error {
	if o.Field != "instancetype" && o.Field != "preference" || o.Value == "" {
		return nil
	}
	kind, name, err := set.Reference(o.Value, o.Field)
	if err != nil {
		return cli.UsageErrorf("%s", err)
	}
	err = o.Factory.CheckReferent(ctx, c, target.Namespace, cli.Referent{Field: o.Field, Kind: kind, Name: name})
	if err != nil {
		if _, absent := c.VM(ctx, target.Namespace, target.Name); apierrors.IsNotFound(absent) {
			return absent
		}
		return fmt.Errorf("VM %s/%s: %w; `%s edit %s%s` names one that is yet to be made", target.Namespace,
			target.Name, err, o.Factory.Program, target.Name, o.Factory.InNamespace(target.Namespace))
	}
	return nil
}

// conflict adds to the server's word that the template sets what the instance type would set the way out. Other errors
// stay as they are.
func (o *Options) conflict(target cli.Target, err error) error {
	if o.Field != "instancetype" || !strings.Contains(err.Error(), instancetype.Conflicts) {
		return err
	}
	return &cli.ExitError{Code: cli.ExitCode(err), Err: fmt.Errorf("%s: `%s edit %s%s` takes such fields out of the "+
		"template and names the instance type in one change", cli.Explain(err, o.Factory.Connection()),
		o.Factory.Program, target.Name, o.Factory.InNamespace(target.Namespace))}
}

func (o *Options) print(target cli.Target, result *set.Result) error {
	if o.Output.Given() {
		return o.Output.Print(result.VM, o.Factory.IO.Out)
	}
	done := o.Field + " updated"
	if len(result.Verdict.Changes) == 0 {
		done = "unchanged"
	}
	if _, err := fmt.Fprintf(o.Factory.IO.Out, "virtualmachine.kubevirt.io/%s %s%s\n", target.Name, done,
		o.DryRun.Suffix()); err != nil {
		return err
	}
	return diffcmd.WriteChanges(o.Factory.IO.Out, result.Verdict.Changes)
}
