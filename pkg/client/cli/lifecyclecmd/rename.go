package lifecyclecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/rename"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// RenameOptions of `virtctl rename`.
type RenameOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	// VM is the argument that names it.
	VM      string
	Request rename.Request
	Yes     bool
	DryRun  cli.DryRun
	Timeout cli.Timeout

	// undoes is the ID of the journal's entry that is taken back.
	undoes string
}

// NewCmdRename makes `virtctl rename`.
func NewCmdRename(f *cli.Factory) *cobra.Command {
	o := &RenameOptions{
		Factory: f, Output: cli.NewOutput(),
		Timeout: cli.Timeout{Duration: 5 * time.Minute, Unit: time.Second},
	}
	cmd := &cobra.Command{
		Use:   "rename VM NEWNAME",
		Short: "Give a stopped virtual machine another name",
		Long: `Give a stopped virtual machine another name. Its claims keep their names and their data, and so do DataVolumes, the
state of a TPM and of EFI, and whatever else belongs to it; they pass over. The guest keeps its firmware UUID, the
addresses in the spec, its host name (unless --hostname says another), and does not take its next start for a first one.

Kubernetes cannot rename an object: the VM is made anew, and the old one removed. A rename that was interrupted goes on
when it is asked for again, and at every moment one of the two VMs at most can start. Services that select the guest
by its VM's name do not find it any more; they are named.`,
		Example: cli.Examples(f.Program, `
			virtctl rename web shop
			virtctl rename web shop --dry-run
			virtctl rename web shop --hostname shop --yes`),
		Args: cli.Args(2, 2, "the name of a VM and its new name"),
		ValidArgsFunction: func(
			cmd *cobra.Command, args []string, toComplete string,
		) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completioncmd.VMs(f, 1)(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.VM, o.Request.To = args[0], args[1]
			if err := o.validate(); err != nil {
				return err
			}
			return RunRename(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Request.Hostname, "hostname", "",
		"Host `NAME` of the guest from its next start on; the one that it has unless given")
	flags.BoolVarP(&o.Yes, "yes", "y", false, "Do not ask before it is renamed")
	flags.Var(&o.Timeout, "timeout", "How long to wait until the VM of the old name is gone; 0 is no limit")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *RenameOptions) validate() error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(o.Request.To); len(problems) > 0 {
		return cli.UsageErrorf("%q is no name of a VM: %s", o.Request.To, problems[0])
	}
	host := o.Request.Hostname
	if problems := validation.IsDNS1123Label(host); host != "" && len(problems) > 0 {
		return cli.UsageErrorf("--hostname: %q is no host name: %s", host, problems[0])
	}
	return nil
}

// RunRename renames the VM.
func RunRename(ctx context.Context, o *RenameOptions) error {
	ns, err := o.Factory.Namespace()
	if err != nil {
		return err
	}
	target, err := cli.ParseTarget(o.VM, ns)
	if err != nil {
		return err
	}
	if target.Instance {
		return cli.UsageErrorf("%q: only a VM can be renamed; say vm/%s", o.VM, target.Name)
	}
	if target.Name == o.Request.To {
		return cli.UsageErrorf("VM %s has that name already", target.Name)
	}
	o.Request.Namespace, o.Request.Name = target.Namespace, target.Name
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	return o.run(ctx, c)
}

// run looks whether it can be done, asks, does it and says so.
func (o *RenameOptions) run(ctx context.Context, c *client.Client) error {
	renamer := rename.New(c, o.Request)
	plan, err := renamer.Plan(ctx)
	if err != nil {
		return o.exit(err)
	}
	o.note(plan)
	switch {
	case plan.Done:
		return o.report(plan.VM, "was renamed already")
	case o.DryRun == cli.DryRunServer:
		if err := renamer.Try(ctx, plan); err != nil {
			return err
		}
		fallthrough
	case o.DryRun == cli.DryRunClient:
		return o.report(plan.VM, o.done())
	}
	if err := o.confirm(ctx, plan); err != nil {
		return err
	}
	ctx, cancel := o.Timeout.Limit(ctx)
	defer cancel()
	var vm *v1.VirtualMachine
	err = o.Factory.IO.While("renaming VM "+o.Request.Name, func() (err error) {
		vm, err = renamer.Run(ctx, rename.DefaultInterval)
		return err
	})
	if err != nil {
		return o.exit(err)
	}
	o.record(vm)
	return o.report(vm, o.done())
}

// exit prints, when the user has interrupted a rename that has begun, how it goes on, and returns err.
func (o *RenameOptions) exit(err error) error {
	if begun := (*rename.UnfinishedError)(nil); errors.As(err, &begun) {
		r := begun.Request
		o.Factory.IO.Interrupted(err, "rename of VM %s/%s has begun; `%s rename %s %s -n %s` goes on",
			r.Namespace, r.Name, o.Factory.Program, r.Name, r.To, r.Namespace)
	}
	return err
}

// note prints what the rename does not do by itself, and in a dry run which objects pass to the new VM.
func (o *RenameOptions) note(plan *rename.Plan) {
	out := o.Factory.IO.ErrOut
	if o.DryRun != cli.DryRunNone && len(plan.Passes) > 0 {
		fmt.Fprintf(out, "these pass over: %s\n", strings.Join(plan.Passes, ", "))
	}
	for _, note := range plan.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
}

func (o *RenameOptions) confirm(ctx context.Context, plan *rename.Plan) error {
	if o.Yes || !o.Factory.IO.CanAsk() {
		return nil
	}
	what := "The VM is made anew under that name, and the old one is removed; its claims stay."
	if !plan.Goes {
		what = "The old VM is gone already; this finishes what was begun."
	}
	r := o.Request
	question := fmt.Sprintf("Rename VM %s/%s to %s? %s", r.Namespace, r.Name, r.To, what)
	yes, err := cli.Confirm(ctx, o.Factory.IO, question)
	if err == nil && !yes {
		err = fmt.Errorf("VM %s/%s was not renamed", r.Namespace, r.Name)
	}
	return err
}

func (o *RenameOptions) done() string {
	text := "renamed from " + o.Request.Name
	if o.undoes != "" {
		text += `, which undoes "` + o.Factory.Program + ` rename"`
	}
	return text
}

func (o *RenameOptions) report(vm *v1.VirtualMachine, what string) error {
	if o.Output.Given() {
		return o.Output.Print(vm, o.Factory.IO.Out)
	}
	_, err := fmt.Fprintf(o.Factory.IO.Out, "virtualmachine.kubevirt.io/%s %s%s\n", vm.Name, what, o.DryRun.Suffix())
	return err
}

// record writes the rename into the journal.
func (o *RenameOptions) record(vm *v1.VirtualMachine) {
	err := write(o.Factory, &journal.Entry{
		Verb: lifecycle.Rename, Undoes: o.undoes, Machines: []journal.Machine{{
			Namespace: vm.Namespace, Name: o.Request.Name, RenamedTo: vm.Name, UID: vm.UID,
		}},
	})
	if err != nil && o.Factory.IO.ErrIsTTY {
		fmt.Fprintf(o.Factory.IO.ErrOut, "warning: it cannot be undone: %v\n", err)
	}
}
