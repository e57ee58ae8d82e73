// Package clonecmd is `virtctl clone`.
package clonecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Options of `virtctl clone`.
type Options struct {
	cli.Creation

	MACs    map[string]string
	Partial bool
	// TargetNamespace is where the copy is made; empty is beside the source.
	TargetNamespace string

	clone.Options
}

// NewCmdClone makes the command.
func NewCmdClone(f *cli.Factory) *cobra.Command {
	o := &Options{Creation: cli.NewCreation(f)}
	cmd := &cobra.Command{
		Use:   "clone SOURCE [NAME]",
		Short: "Make a virtual machine that is a copy of another",
		Long: `Make a virtual machine that is a copy of another, which may run, or with --from-snapshot of a snapshot.
The new VM does not start by itself; it has its own volumes, and its own identity: MAC addresses, firmware UUID and
serial number, host name, and cloud-init's instance-id. --keep keeps what you list of it. One without a name is given
one, which -o jsonpath={.status.targetName} prints with --wait.

With --target-namespace the copy is made in another namespace. That takes the right to create
virtualmachineclones/source in the namespace of the source, which edit and admin have, and the right to create
virtualmachineclones in the other. Secrets, ConfigMaps, service accounts and networks that the VM names are not
copied.

A filter is a pattern of labels to keep, such as "*" or "app/*", or with "!" of those to drop. The VM's template has
labels and annotations of its own, which its instances and their pods get, and filters of its own.`,
		Example: cli.Examples(f.Program, `
			virtctl clone demo demo-copy --wait
			virtctl clone before-upgrade demo-copy --from-snapshot
			virtctl clone demo demo -n team-a --target-namespace team-b --wait
			virtctl clone demo spare --keep mac,hostname
			virtctl clone demo demo-copy --new-mac default=02:00:00:00:00:17 --label-filter '*' --label-filter '!app'`),
		Args:              cli.Args(1, 2, "the name of a VM, and that of its copy"),
		ValidArgsFunction: complete(f, o),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.FromSnapshot, "from-snapshot", false, "SOURCE is a snapshot")
	flags.StringVar(&o.TargetNamespace, "target-namespace", "",
		"`NAMESPACE` of the copy, when it is not that of SOURCE")
	flags.StringToStringVar(&o.MACs, "new-mac", nil, "MAC addresses of the copy, `INTERFACE=MAC,…`")
	flags.StringArrayVar(&o.LabelFilters, "label-filter", nil, "`FILTER` of the VM's labels (can be repeated)")
	flags.StringArrayVar(&o.AnnotationFilters, "annotation-filter", nil,
		"`FILTER` of the VM's annotations (can be repeated)")
	flags.StringArrayVar(&o.TemplateLabelFilters, "template-label-filter", nil,
		"`FILTER` of labels of the VM's template (can be repeated)")
	flags.StringArrayVar(&o.TemplateAnnotationFilters, "template-annotation-filter", nil,
		"`FILTER` of annotations of the VM's template (can be repeated)")
	flags.StringVar(&o.Serial, "new-smbios-serial", "", "SMBIOS `SERIAL` number of the copy")
	flags.StringSliceVar(&o.Keep, "keep", nil, clone.KeepUsage)
	flags.StringArrayVar(&o.Patches, "patch", nil, "JSON `PATCH` of the copy (can be repeated)")
	flags.BoolVar(&o.Partial, "partial", false, "Leave out claims that cannot be snapshotted")
	cli.CompleteFlag(cmd, "keep", clones.Parts...)
	completioncmd.Flag(cmd, "target-namespace", completioncmd.Namespaces(f))
	o.AddFlags(cmd, "the copy is there", 10*time.Minute)
	return cmd
}

// complete completes VMs, or with --from-snapshot snapshots.
func complete(f *cli.Factory, o *Options) cobra.CompletionFunc {
	machines, cuts := completioncmd.VMs(f, 1), completioncmd.Snapshots(f, 1)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if o.FromSnapshot {
			return cuts(cmd, args, typed)
		}
		return machines(cmd, args, typed)
	}
}

func (o *Options) complete(args []string) error {
	o.Source = strings.TrimPrefix(args[0], "vm/")
	if name, ok := strings.CutPrefix(o.Source, "snapshot/"); ok {
		o.Source, o.FromSnapshot = name, true
	}
	if len(args) > 1 {
		o.Target = args[1]
	}
	for _, name := range append([]string{o.Source}, args[1:]...) {
		if problems := content.IsDNS1123Subdomain(name); len(problems) > 0 {
			return cli.UsageErrorf("%q is not a name: %s", name, strings.Join(problems, "; "))
		}
	}
	if problems := content.IsDNS1123Label(o.TargetNamespace); o.TargetNamespace != "" && len(problems) > 0 {
		return cli.UsageErrorf("--target-namespace: %q is not a namespace: %s", o.TargetNamespace,
			strings.Join(problems, "; "))
	}
	for _, name := range slices.Sorted(maps.Keys(o.MACs)) {
		if _, err := net.ParseMAC(o.MACs[name]); err != nil || name == "" {
			return cli.UsageErrorf("--new-mac: %q is not INTERFACE=MAC", name+"="+o.MACs[name])
		}
	}
	o.Options.MACs = o.MACs
	if trouble := o.Trouble(); trouble != "" {
		return cli.UsageErrorf("--keep: %s", trouble)
	}
	return o.Validate()
}

// cloneKind is the kind of object that the command creates.
var cloneKind = cli.Kind[*clonev1beta1.VirtualMachineClone]{
	Name: "clone", Resource: "virtualmachineclone.clone.kubevirt.io", Create: clone.Create, Wait: clone.Wait,
}

// Run asks for the clone, and with Wait waits until it is there.
func Run(ctx context.Context, o *Options) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	if err := o.check(ctx, c, namespace); err != nil {
		return err
	}
	o.SourceNamespace = namespace
	object, err := cloneKind.Send(ctx, c, &o.Creation,
		clone.New(o.target(namespace), "clone-"+o.Factory.RandomName(5), o.Options))
	if err != nil {
		return err
	}
	return cloneKind.Follow(ctx, c, &o.Creation, object, func(done *clonev1beta1.VirtualMachineClone) string {
		target := done.Status.TargetName
		if target == nil {
			return ""
		}
		return fmt.Sprintf("virtualmachine.kubevirt.io/%s created%s\n%s", *target, o.elsewhere(), o.reached(*target))
	})
}

// target returns the namespace of the copy.
func (o *Options) target(source string) string { return cmp.Or(o.TargetNamespace, source) }

// reached returns what is true after the wait.
func (o *Options) reached(target string) string {
	kind, source := "VM ", o.Source
	if o.FromSnapshot {
		kind = "snapshot "
	}
	if o.elsewhere() != "" {
		source = o.SourceNamespace + "/" + source
	}
	return fmt.Sprintf("virtualmachine.kubevirt.io/%s%s is stopped: it is a copy of %s%s", target, o.elsewhere(), kind,
		source)
}

// elsewhere returns the namespace of a copy in another namespace than its source's, as the end of a sentence; empty for
// a copy beside its source.
func (o *Options) elsewhere() string {
	if o.target(o.SourceNamespace) == o.SourceNamespace {
		return ""
	}
	return " in namespace " + o.TargetNamespace
}

// check returns an error for what cannot be cloned, before anything is done.
func (o *Options) check(ctx context.Context, c *client.Client, namespace string) error {
	if o.FromSnapshot {
		taken, err := snapshot.GetReady(ctx, c, namespace, o.Source)
		if o.mayBeHidden(namespace, err) {
			return o.free(ctx, c, o.target(namespace))
		}
		if err != nil {
			return err
		}
		if err := o.checkTaken(ctx, c, taken); err != nil {
			return err
		}
		return o.free(ctx, c, o.target(namespace))
	}
	vm, err := c.VM(ctx, namespace, o.Source)
	if o.mayBeHidden(namespace, err) {
		return o.free(ctx, c, o.target(namespace))
	}
	if err != nil {
		return fmt.Errorf("look at VM %s/%s: %w", namespace, o.Source, err)
	}
	if err := o.checkMACs(fmt.Sprintf("VM %s/%s", namespace, o.Source), vm.Spec.Template); err != nil {
		return err
	}
	state, err := keepsState(ctx, c, vm)
	if err != nil {
		return err
	}
	if trouble := clones.StateTrouble(vm.Name, state, o.Target); trouble != "" {
		return fmt.Errorf("%s, which --target-namespace names", trouble)
	}
	warning, err := snapshot.CheckWhole(vm, o.Partial, "give --partial to clone it without them")
	if err != nil {
		return err
	}
	if warning != "" {
		o.Factory.Warn(warning)
	}
	return o.free(ctx, c, o.target(namespace))
}

// keepsState reports whether a VM has persistent state, for which its preference, too, may ask. Where the server does
// not write the preference out, it refuses the clone.
func keepsState(ctx context.Context, c *client.Client, vm *v1.VirtualMachine) (bool, error) {
	if vm.Spec.Preference == nil {
		return clones.KeepsState(vm), nil
	}
	expanded, err := c.Expanded(ctx, vm.Namespace, vm.Name)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		return clones.KeepsState(vm), nil
	case err != nil:
		return false, fmt.Errorf("look at what the preference of VM %s/%s asks for: %w", vm.Namespace, vm.Name, err)
	}
	return clones.KeepsState(expanded), nil
}

// mayBeHidden reports that the source in another namespace may not be read, which who may clone it need not be allowed:
// the server says what it cannot clone.
func (o *Options) mayBeHidden(namespace string, err error) bool {
	return o.target(namespace) != namespace && apierrors.IsForbidden(err)
}

// checkTaken returns an error when the VM in a snapshot cannot be cloned. The user may not be allowed to see the
// snapshot's content, or it may be gone; then the clone itself says what is wrong.
func (o *Options) checkTaken(
	ctx context.Context, c *client.Client, taken *snapshotv1beta1.VirtualMachineSnapshot,
) error {
	kept, err := snapshot.Content(ctx, c, taken)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), errors.Is(err, snapshot.ErrNoKinds):
		return nil
	case err != nil:
		return err
	case kept == nil || kept.Spec.Source.VirtualMachine == nil:
		return nil
	}
	vm := kept.Spec.Source.VirtualMachine
	if trouble := clones.StateTrouble(vm.Name, snapshots.HasState(kept), o.Target); trouble != "" {
		return fmt.Errorf("%s, which --target-namespace names", trouble)
	}
	return o.checkMACs(fmt.Sprintf("the VM of snapshot %s/%s", taken.Namespace, taken.Name),
		vm.Spec.Template)
}

// checkMACs refuses an address of an interface that the source, called what, does not have.
func (o *Options) checkMACs(what string, template *v1.VirtualMachineInstanceTemplateSpec) error {
	if template == nil {
		return nil
	}
	switch name, have := o.UnknownInterface(&template.Spec); {
	case name == "":
		return nil
	case len(have) == 0:
		return cli.UsageErrorf("--new-mac: %s has no interface %q; it has none", what, name)
	default:
		return cli.UsageErrorf("--new-mac: %s has no interface %q; it has %s", what, name, strings.Join(have, ", "))
	}
}

// free refuses a name that a VM has.
func (o *Options) free(ctx context.Context, c *client.Client, namespace string) error {
	if o.Target == "" {
		return nil
	}
	switch _, err := c.VM(ctx, namespace, o.Target); {
	case apierrors.IsNotFound(err) && !client.Unserved(err):
		return nil
	case err != nil:
		return fmt.Errorf("look whether VM %s/%s exists: %w", namespace, o.Target, err)
	}
	return fmt.Errorf("VM %s/%s exists already; give the copy another name", namespace, o.Target)
}
