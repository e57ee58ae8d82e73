package snapshotcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// CreateOptions are the options of `virtctl snapshot create`.
type CreateOptions struct {
	cli.Creation

	Selection cli.Selection
	// Machine is the VM's name unless Selection is given, Name the snapshot's; one is made of the time when it is
	// empty.
	Machine, Name string
	// Deadline is the most that a snapshot may take; 0 is the server's.
	Deadline cli.Timeout
	Policy   string
	// Partial takes snapshots without the claims that cannot be snapshotted.
	Partial bool
	// Memory includes the memory of the guest.
	Memory bool
}

var deletionPolicies = []string{
	string(snapshotv1beta1.VirtualMachineSnapshotContentDelete),
	string(snapshotv1beta1.VirtualMachineSnapshotContentRetain),
}

// NewCmdCreate makes `virtctl snapshot create`.
func NewCmdCreate(f *cli.Factory) *cobra.Command {
	o := &CreateOptions{Creation: cli.NewCreation(f), Deadline: cli.Timeout{Unit: time.Second}}
	cmd := &cobra.Command{
		Use:   "create (VM [NAME] | -l SELECTOR | --all)",
		Short: "Take a snapshot of a virtual machine",
		Long: `Take a snapshot of a virtual machine, which may run. A guest that runs is frozen by its agent while its volumes are
snapshotted, or paused when it has no agent.

The snapshot is named VM-DATE-TIME unless a name is given. A VM with a claim that cannot be snapshotted is refused;
--partial leaves such claims out.

With --memory the snapshot has the guest's memory, too, and a restore of the VM resumes the guest where it was instead
of booting it. The guest stands still while its memory is written.`,
		Example: cli.Examples(f.Program, `
			virtctl snapshot create demo
			virtctl snapshot create demo before-upgrade --wait
			virtctl snapshot create demo before-upgrade --memory --wait
			virtctl snapshot create -l app=web --yes --wait --timeout 30m
			virtctl snapshot create demo --failure-deadline 2m --deletion-policy Retain`),
		Args:              cli.Args(0, 2, "the name of a VM, and that of the snapshot"),
		ValidArgsFunction: completioncmd.VMs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return Create(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	o.Selection.AddFlags(cmd)
	flags.Var(&o.Deadline, "failure-deadline", "The most that a snapshot may take; 5m unless given")
	flags.StringVar(&o.Policy, "deletion-policy", "",
		"What becomes of the content when the snapshot is deleted, a `POLICY`: "+strings.Join(deletionPolicies, ", "))
	flags.BoolVar(&o.Partial, "partial", false, "Leave out claims that cannot be snapshotted")
	flags.BoolVar(&o.Memory, "memory", false, "Include the memory of the guest, which must run")
	o.AddFlags(cmd, "the snapshot can be restored", 10*time.Minute)
	cli.CompleteFlag(cmd, "deletion-policy", deletionPolicies...)
	return cmd
}

func (o *CreateOptions) complete(cmd *cobra.Command, args []string) error {
	if err := o.Selection.Validate(cmd, args); err != nil {
		return err
	}
	if len(args) > 0 {
		o.Machine = args[0]
	}
	if len(args) > 1 {
		if o.Name = args[1]; checkName("snapshot", o.Name) != nil {
			return checkName("snapshot", o.Name)
		}
	}
	switch {
	case o.Policy != "" && !slices.Contains(deletionPolicies, o.Policy):
		return cli.UsageErrorf("--deletion-policy: %q is not one of %s", o.Policy, strings.Join(deletionPolicies, ", "))
	case cmd.Flags().Changed("failure-deadline") && o.Deadline.Duration <= 0:
		return cli.UsageErrorf("--failure-deadline: a snapshot must end; give a time such as 2m, or leave the flag " +
			"out for 5m")
	case o.Selection.Given() && !o.Selection.Yes && o.DryRun == cli.DryRunNone && !o.Factory.IO.CanAsk():
		return cli.UsageErrorf("snapshot create holds the guests that are chosen for a moment; add --yes to say that " +
			"you mean it, or see with --dry-run which they are")
	}
	return o.Validate()
}

// snapshotKind is the kind of object that the command creates.
var snapshotKind = cli.Kind[*snapshotv1beta1.VirtualMachineSnapshot]{
	Name: "snapshot", Resource: "virtualmachinesnapshot.snapshot.kubevirt.io",
	Create: snapshot.Create, Wait: snapshot.Wait,
}

// Create takes the snapshots, and with Wait waits until they are taken.
func Create(ctx context.Context, o *CreateOptions) error {
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	machines, err := o.machines(ctx, c)
	if err != nil {
		return err
	}
	var errs []error
	var made []*snapshotv1beta1.VirtualMachineSnapshot
	for i := range machines {
		s, err := o.take(ctx, c, &machines[i])
		if err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		made = append(made, s)
		if err := snapshotKind.Said(&o.Creation, s); err != nil {
			return err
		}
	}
	objects := make([]runtime.Object, len(made))
	for i, s := range made {
		s, err := snapshotKind.Await(ctx, c, &o.Creation, s)
		objects[i] = s
		switch {
		case err != nil:
			errs = append(errs, err)
		case o.Wait && !o.Output.Given():
			if _, err := fmt.Fprintln(o.Factory.IO.Out, snapshot.Reached(s)); err != nil {
				return err
			}
		}
	}
	if o.Output.Given() && (len(objects) > 0 || o.Selection.Given()) {
		if err := o.Output.PrintAll(objects, !o.Selection.Given(), o.Factory.IO.Out); err != nil {
			return err
		}
	}
	return utilerrors.NewAggregate(errs)
}

// machines returns the VMs to take snapshots of.
func (o *CreateOptions) machines(ctx context.Context, c *client.Client) ([]v1.VirtualMachine, error) {
	if !o.Selection.Given() {
		t, err := o.Factory.Target(o.Machine)
		if err != nil {
			return nil, err
		}
		if t.Instance {
			return nil, cli.UsageErrorf("%q: only a VM can be snapshotted; give the name of a VM", o.Machine)
		}
		vm, err := c.VM(ctx, t.Namespace, t.Name)
		if err != nil {
			return nil, fmt.Errorf("look at VM %s/%s: %w", t.Namespace, t.Name, err)
		}
		return []v1.VirtualMachine{*vm}, nil
	}
	namespace, err := o.Factory.Namespace()
	if err != nil {
		return nil, err
	}
	if o.Selection.AllNamespaces {
		namespace = ""
	}
	list, err := c.VMList(ctx, namespace, metav1.ListOptions{LabelSelector: o.Selection.Selector})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list VMs: %w", err)
	case len(list.Items) == 0:
		if namespace == "" {
			return nil, fmt.Errorf("VMs to snapshot %w in any namespace", action.ErrNotFound)
		}
		return nil, fmt.Errorf("VMs to snapshot %w in namespace %q", action.ErrNotFound, namespace)
	case o.DryRun != cli.DryRunNone:
		return list.Items, nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return list.Items, confirm(ctx, o.Factory, o.Selection.Yes, "this takes snapshots of "+strings.Join(names, ", "),
		fmt.Sprintf("%s\nTake snapshots of these %d virtual machines?", strings.Join(names, ", "), len(names)))
}

// take takes the snapshot of one VM.
func (o *CreateOptions) take(ctx context.Context, c *client.Client, vm *v1.VirtualMachine) (
	*snapshotv1beta1.VirtualMachineSnapshot, error,
) {
	warning, err := snapshot.CheckWhole(vm, o.Partial, "give --partial to leave them out")
	if err != nil {
		return nil, err
	}
	if warning != "" {
		o.Factory.Warn(warning)
	}
	if o.Memory {
		vmi, err := c.VMI(ctx, vm.Namespace, vm.Name)
		if apierrors.IsNotFound(err) {
			vmi = nil
		} else if err != nil {
			return nil, fmt.Errorf("--memory: look at the guest of %s/%s: %w", vm.Namespace, vm.Name, err)
		}
		if err := snapshot.CheckMemory(vm, vmi); err != nil {
			return nil, err
		}
	}
	name := o.Name
	if name == "" {
		name = vm.Name + "-" + o.Factory.Now().UTC().Format("20060102-150405")
	}
	options := snapshot.Options{Policy: snapshotv1beta1.DeletionPolicy(o.Policy), Memory: o.Memory}
	if o.Deadline.Duration > 0 {
		options.Deadline = &metav1.Duration{Duration: o.Deadline.Duration}
	}
	return snapshotKind.Send(ctx, c, &o.Creation, snapshot.New(vm.Namespace, vm.Name, name, options))
}
