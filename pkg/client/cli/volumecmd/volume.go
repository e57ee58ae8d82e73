// Package volumecmd is `virtctl addvolume` and `removevolume`.
package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// Options of the two verbs.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Remove  bool
	Name    string
	Request volume.Options
	DryRun  cli.DryRun

	cli.Waiting
}

// NewCmdAddVolume makes `virtctl addvolume`.
func NewCmdAddVolume(f *cli.Factory) *cobra.Command {
	o := newOptions(f, false)
	cmd := o.command("addvolume NAME", "Plug a volume into a running virtual machine", `
		virtctl addvolume demo --volume-name=data
		virtctl addvolume demo --volume-name=data --wait
		virtctl addvolume vmi/demo --volume-name=data
		virtctl addvolume demo --volume-name=data --serial=D123 --bus=virtio --cache=none`)
	cmd.Long = `Plug a PersistentVolumeClaim into a running virtual machine as a disk.

The disk becomes part of the virtual machine, which need not run. That of an instance, vmi/NAME, is gone with
the next restart.`
	flags := cmd.Flags()
	flags.StringVar(&o.Request.Disk, "disk-name", "",
		"Name of the volume and its disk in the spec; that of the claim unless given")
	flags.StringVar(&o.Request.Serial, "serial", "", "Serial number of the disk; the volume's name unless given")
	flags.StringVar(&o.Request.Cache, "cache", "", "Cache mode of the disk: "+strings.Join(volume.Caches, ", "))
	flags.StringVar(&o.Request.DiskType, "disk-type", "disk", "Kind of disk: "+strings.Join(volume.DiskTypes, ", "))
	flags.StringVar(&o.Request.Bus, "bus", "", "Bus of the disk: scsi or virtio; scsi unless given")
	cli.CompleteFlag(cmd, "cache", volume.Caches...)
	cli.CompleteFlag(cmd, "disk-type", volume.DiskTypes...)
	cli.CompleteFlag(cmd, "bus", volume.Buses...)
	completioncmd.Flag(cmd, "volume-name", completioncmd.Claims(f))
	return cmd
}

// NewCmdRemoveVolume makes `virtctl removevolume`.
func NewCmdRemoveVolume(f *cli.Factory) *cobra.Command {
	o := newOptions(f, true)
	cmd := o.command("removevolume NAME", "Unplug a volume from a running virtual machine", `
		virtctl removevolume demo --volume-name=data
		virtctl removevolume demo --volume-name=data --wait`)
	cmd.Long = `Unplug a volume from a running virtual machine. Unmount it in the guest first: a disk that is in use is pulled out
of it all the same, and what was not yet written is lost.`
	completioncmd.Flag(cmd, "volume-name", completioncmd.Hotplugged(f))
	return cmd
}

func newOptions(f *cli.Factory, remove bool) *Options {
	return &Options{
		Factory: f, Output: cli.NewOutput(), Remove: remove,
	}
}

func (o *Options) command(use, short, examples string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               use,
		Short:             short,
		Example:           cli.Examples(o.Factory.Program, examples),
		Args:              cli.Args(1, 1, "the name of a VM"),
		ValidArgsFunction: completioncmd.VMIs(o.Factory, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Request.Volume, "volume-name", "",
		"Name of the PersistentVolumeClaim, and of the volume in the spec")
	flags.Bool("persist", false, "Without effect, as in KubeVirt: a change of a VM lasts")
	o.AddFlags(cmd, "it is done", 5*time.Minute)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) validate() error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if o.Request.Volume == "" {
		return cli.UsageErrorf("--volume-name is not given; it is the name of the PersistentVolumeClaim")
	}
	check := o.Request.CheckAdd
	if o.Remove {
		check = o.Request.CheckRemove
	}
	if wrong := (*volume.FieldError)(nil); errors.As(check(), &wrong) {
		return cli.UsageErrorf("--%s: %s", wrong.Field, wrong.Reason)
	}
	if err := o.CheckWait(o.DryRun); err != nil {
		return err
	}
	return nil
}

// Run requests the change, and with Wait waits until it is made.
func Run(ctx context.Context, o *Options) error {
	t, err := o.Factory.Target(o.Name)
	if err != nil {
		return err
	}
	if o.DryRun == cli.DryRunClient && !o.Output.Given() {
		return o.report(t)
	}
	o.Request.DryRun = o.DryRun == cli.DryRunServer
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if o.DryRun == cli.DryRunClient {
		return o.print(ctx, c, t) // as it is: what the server makes of the request is not known
	}
	if o.Request.Instance, err = o.ofInstance(ctx, c, t); err != nil {
		return err
	}
	verb, request, condition := lifecycle.AddVolume, volume.Add, volume.PluggedOrHeld(ctx, c, o.Request.Name())
	if o.Remove {
		verb, request, condition = lifecycle.RemoveVolume, volume.Remove, volume.Unplugged(o.Request.Volume)
	}
	if err := request(ctx, c, t.Namespace, t.Name, o.Request); err != nil {
		o.interrupted(err, t, false)
		return err
	}
	if o.DryRun == cli.DryRunNone {
		lifecyclecmd.Note(o.Factory, verb,
			lifecycle.Target{Namespace: t.Namespace, Name: t.Name, Instance: o.Request.Instance})
	}
	if !o.Output.Given() {
		if err := o.report(t); err != nil {
			return err
		}
	}
	if o.Wait {
		err := o.wait(ctx, c, t, condition)
		o.interrupted(err, t, true)
		return err
	}
	if !o.Output.Given() {
		return nil
	}
	return o.print(ctx, c, t)
}

// interrupted prints what becomes of the request when the user has ended the command.
func (o *Options) interrupted(err error, t cli.Target, accepted bool) {
	what := "addvolume"
	if o.Remove {
		what = "removevolume"
	}
	o.Factory.IO.Requested(err, accepted, what+" of VM %s/%s, volume %s,", t.Namespace, t.Name, o.Request.Volume)
}

// ofInstance reports whether the change is to be of the instance alone: the user says so, no VM has made it, or it has
// a volume that its VM has not. Whoever may not look at the VM means the VM.
func (o *Options) ofInstance(ctx context.Context, c *client.Client, t cli.Target) (bool, error) {
	if t.Instance {
		return true, nil
	}
	vm, err := c.VM(ctx, t.Namespace, t.Name)
	switch {
	case apierrors.IsNotFound(err):
		if _, instance := c.VMI(ctx, t.Namespace, t.Name); apierrors.IsNotFound(instance) {
			return false, err
		}
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at VM %s/%s: %w", t.Namespace, t.Name, err)
	case !o.Remove || vm.Spec.Template == nil || hotplug.Volume(&vm.Spec.Template.Spec, o.Request.Volume) != nil:
		return false, nil
	}
	vmi, err := c.VMI(ctx, t.Namespace, t.Name)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at instance %s/%s: %w", t.Namespace, t.Name, err)
	}
	return hotplug.Volume(&vmi.Spec, o.Request.Volume) != nil, nil
}

// report prints what KubeVirt's virtctl prints.
func (o *Options) report(t cli.Target) error {
	verb := "add"
	if o.Remove {
		verb = "remove"
	}
	_, err := fmt.Fprintf(o.Factory.IO.Out, "Successfully submitted %s volume request to VM %s for volume %s%s\n",
		verb, t.Name, o.Request.Volume, o.DryRun.Suffix())
	return err
}

// print writes the object that was changed.
func (o *Options) print(ctx context.Context, c *client.Client, t cli.Target) error {
	if !o.Request.Instance {
		vm, err := c.VM(ctx, t.Namespace, t.Name)
		if err != nil {
			return fmt.Errorf("look at VM %s/%s: %w", t.Namespace, t.Name, err)
		}
		return o.Output.Print(vm, o.Factory.IO.Out)
	}
	vmi, err := c.VMI(ctx, t.Namespace, t.Name)
	if err != nil {
		return fmt.Errorf("look at instance %s/%s: %w", t.Namespace, t.Name, err)
	}
	return o.Output.Print(vmi, o.Factory.IO.Out)
}

func (o *Options) wait(ctx context.Context, c *client.Client, t cli.Target, condition wait.Condition) error {
	var state wait.State
	err := o.Until(ctx, o.Factory.IO, "waiting for volume "+o.Request.Name(), func(ctx context.Context) (err error) {
		state, err = wait.Until(ctx, c, t.Namespace, t.Name, condition)
		return err
	})
	if status := volume.Status(state, o.Request.Name()); errors.Is(err, action.ErrTimeout) && status != nil {
		return fmt.Errorf("%w; volume %s is %s: %s", err, status.Name, status.Phase, status.Message)
	}
	if err != nil || !o.Output.Given() {
		return err
	}
	var object runtime.Object = state.VM
	if state.VM == nil || o.Request.Instance && state.VMI != nil {
		object = state.VMI
	}
	return o.Output.Print(object, o.Factory.IO.Out)
}
