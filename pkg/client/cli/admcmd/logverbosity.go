package admcmd

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/verbosity"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

const (
	// show is the value of a component's flag without one.
	show = "show"
	all  = "all"
)

// Options of `virtctl adm log-verbosity`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// Components are the flags of the components, and All's; "" where none was given.
	Components map[string]*string
	Reset      []string
	VMs        []string
	Levels     []string
}

// NewCmdLogVerbosity makes the command.
func NewCmdLogVerbosity(f *cli.Factory) *cobra.Command {
	return newCommand(f, &Options{Factory: f, Output: cli.NewNameless(), Components: map[string]*string{}})
}

func newCommand(f *cli.Factory, o *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log-verbosity",
		Short: "Show, set or reset how much the components log",
		Long: `Show, set or reset how much the components log, from 0 to 9. The default, 2, is what matters; more is for debugging.

virt-api, virt-controller and virt-handler follow at once. A launcher begins with the level of its VM (--vm), or with
that of virt-launcher, and keeps it until the VM is started again. virt-operator is accepted, as KubeVirt's virtctl has
it; there is none in virtkit, and its level has no effect.

A flag of a component without a value shows its level, and with one (--virt-api=5, not --virt-api 5) sets it.`,
		Example: cli.Examples(f.Program, `
			virtctl adm log-verbosity --all
			virtctl adm log-verbosity --virt-handler=7 --virt-launcher=3
			virtctl adm log-verbosity --reset --virt-api=5
			virtctl adm log-verbosity --vm=demo --level=5
			virtctl adm log-verbosity --reset=demo`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	for _, name := range append(verbosity.Components(), all) {
		what := name
		if name == all {
			what = "all components"
		}
		o.Components[name] = flags.String(name, "", "Show or set (`LEVEL`) how much "+what+" logs")
		flags.Lookup(name).NoOptDefVal = show
		cli.CompleteFlag(cmd, name, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	}
	flags.StringSliceVar(&o.Reset, "reset", nil,
		"Reset all components to their default, or `VM`s to what virt-launcher has")
	flags.Lookup("reset").NoOptDefVal = all
	flags.StringSliceVar(&o.VMs, "vm", nil, "Show or set (--level) how much the launcher of a `VM` logs")
	flags.StringSliceVar(&o.Levels, "level", nil, "The `LEVEL`s of the VMs, one for each --vm")
	for _, name := range []string{"vm", "reset"} {
		if err := cmd.RegisterFlagCompletionFunc(name, completioncmd.VMs(f, -1)); err != nil {
			panic(err) // no such flag: a programming error
		}
	}
	cli.CompleteFlag(cmd, "level", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

// wish is what the flags ask for.
type wish struct {
	// shown are components to show, sorted; vms to show are o.VMs.
	shown  []string
	change verbosity.Change
	// levels are those of VMs; nil is a reset.
	levels map[string]*uint
	order  []string
}

func (w *wish) sets() bool { return w.change.Reset || len(w.change.Set) > 0 || len(w.levels) > 0 }

func level(name, text string) (uint, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n > verbosity.Max {
		return 0, cli.UsageErrorf("%s: log verbosity must be 0-%d, not %q", name, verbosity.Max, text)
	}
	return uint(n), nil
}

// wish reads the flags.
func (o *Options) wish() (*wish, error) {
	w := &wish{change: verbosity.Change{Set: map[string]uint{}}, levels: map[string]*uint{}}
	if err := o.wishComponents(w); err != nil {
		return nil, err
	}
	if len(o.Levels) > 0 && len(o.Levels) != len(o.VMs) {
		return nil,
			cli.UsageErrorf("there are %d --vm and %d --level; give a level for each VM", len(o.VMs), len(o.Levels))
	}
	for _, name := range o.Reset {
		if name == all {
			w.change.Reset = true
			continue
		}
		w.levels[name] = nil
		w.order = append(w.order, name)
	}
	for i, text := range o.Levels {
		n, err := level(o.VMs[i], text)
		if err != nil {
			return nil, err
		}
		w.levels[o.VMs[i]] = &n
		w.order = append(w.order, o.VMs[i])
	}
	shows := len(w.shown) > 0 || len(o.VMs) > 0 && len(o.Levels) == 0
	switch {
	case shows && w.sets():
		return nil, cli.UsageErrorf("show levels or set them, not both")
	case !shows && !w.sets():
		return nil, cli.UsageErrorf("no flag specified - expecting at least one flag, such as --all")
	}
	return w, nil
}

func (o *Options) wishComponents(w *wish) error {
	every := *o.Components[all]
	for _, name := range verbosity.Components() {
		text := *o.Components[name]
		if text == "" {
			text = every
		}
		if text == "" {
			continue
		}
		if text == show {
			w.shown = append(w.shown, name)
			continue
		}
		n, err := level(name, text)
		if err != nil {
			return err
		}
		w.change.Set[name] = n
	}
	return nil
}

// Run shows or sets.
func Run(ctx context.Context, o *Options) error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	w, err := o.wish()
	if err != nil {
		return err
	}
	c, ns, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	kv, err := verbosity.Find(ctx, c)
	if err != nil {
		return err
	}
	if w.sets() {
		return o.set(ctx, c, kv, ns, w)
	}
	report := verbosity.NewReport()
	for _, name := range w.shown {
		report.Components = append(report.Components, verbosity.Level{Name: name, Level: verbosity.Of(kv, name)})
	}
	for _, name := range o.VMs {
		vm, err := c.VM(ctx, ns, name)
		if err != nil {
			return fmt.Errorf("look at VM %s/%s: %w", ns, name, err)
		}
		if err := o.addVM(ctx, c, report, kv, vm); err != nil {
			return err
		}
	}
	if o.Output.Given() {
		return o.Output.Print(report, o.Factory.IO.Out)
	}
	return o.print(report)
}

func (o *Options) addVM(
	ctx context.Context, c *client.Client, report *verbosity.Report, kv *v1.KubeVirt, vm *v1.VirtualMachine,
) error {
	vmi, err := c.VMI(ctx, vm.Namespace, vm.Name)
	switch {
	case apierrors.IsNotFound(err):
		vmi = nil
	case err != nil:
		return fmt.Errorf("look at instance %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	report.VirtualMachines = append(report.VirtualMachines, verbosity.OfVM(kv, vm, vmi))
	return nil
}

func (o *Options) print(report *verbosity.Report) error {
	var lines []string
	for _, l := range report.Components {
		lines = append(lines, fmt.Sprintf("%s = %d", l.Name, l.Level))
	}
	for _, l := range report.VirtualMachines {
		lines = append(lines, fmt.Sprintf("%s = %d", l.Name, l.Level))
		if l.AfterRestart != nil {
			lines = append(lines, fmt.Sprintf("%s: updated verbosity %d will be applied after the VM is restarted",
				l.Name, *l.AfterRestart))
		}
	}
	return o.say(lines...)
}

func (o *Options) say(lines ...string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(o.Factory.IO.Out, line+o.DryRun.Suffix()); err != nil {
			return err
		}
	}
	return nil
}

// set makes the changes, and says what KubeVirt's virtctl says.
func (o *Options) set(ctx context.Context, c *client.Client, kv *v1.KubeVirt, ns string, w *wish) error {
	report := verbosity.NewReport()
	var said []string
	local, dry := o.DryRun == cli.DryRunClient, o.DryRun != cli.DryRunNone
	if w.change.Reset || len(w.change.Set) > 0 {
		if !local {
			var err error
			if kv, err = verbosity.Apply(ctx, c, kv, w.change, dry); err != nil {
				return err
			}
		}
		if w.change.Reset {
			said = append(said, fmt.Sprintf("successfully reset the verbosity of all KubeVirt components to default "+
				"(%d)", verbosity.Default))
		}
		if len(w.change.Set) > 0 {
			said = append(said, "successfully set the verbosity of the KubeVirt component(s)")
		}
		for _, name := range verbosity.Components() {
			report.Components = append(report.Components, verbosity.Level{Name: name, Level: verbosity.Of(kv, name)})
		}
		if o.Factory.IO.ErrIsTTY && *o.Components[verbosity.Operator] != "" {
			fmt.Fprintf(o.Factory.IO.ErrOut, "%s is absent from virtkit; its level has no effect\n", verbosity.Operator)
		}
	}
	for _, name := range w.order {
		level := w.levels[name]
		if !local {
			vm, err := verbosity.ApplyVM(ctx, c, ns, name, level, dry)
			if err != nil {
				return err
			}
			if err := o.addVM(ctx, c, report, kv, vm); err != nil {
				return err
			}
		}
		if level == nil {
			said = append(said, name+
				": successfully removed the logVerbosity label - need to (re)start vm to apply the reset")
		} else {
			said = append(said, name+
				": successfully set the logVerbosity label - need to (re)start vm to apply the new verbosity")
		}
	}
	if o.Output.Given() {
		return o.Output.Print(report, o.Factory.IO.Out)
	}
	return o.say(said...)
}
