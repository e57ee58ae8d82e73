package createcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// VMOptions of `virtctl create vm`.
type VMOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	Apply   bool

	VM create.Options
	// The flags as they were written; Complete puts them into VM.
	Volumes      volumeFlags
	PasswordFile string
	SSHKeys      []string
	GAManageSSH  bool
	AccessCreds  []string
	Networks     []string
	IPs          []string
	GracePeriod  cli.Seconds
	// Image is a pulled image, of which the first disk is a copy. Pull pulls one that is not there.
	Image, ImageSize string
	Pull             bool
	Infer            bool
	InferPreference  bool
	// note is told how to log in to a guest of an image; nil prints it.
	note func(string)
}

// NewCmdVM makes `virtctl create vm`.
func NewCmdVM(f *cli.Factory) *cobra.Command {
	o := &VMOptions{
		Factory:     f,
		Output:      cli.NewOutput(),
		GracePeriod: create.DefaultTerminationGracePeriodSeconds,
	}
	cmd := &cobra.Command{
		Use:     "vm",
		Aliases: []string{"virtualmachine"},
		Short:   "Create a VirtualMachine",
		Long: `Create a VirtualMachine from flags.

Without --apply the manifest is printed, for "kubectl apply -f -" or a file. With --apply it is created in the
cluster and the name is printed. Disks are attached in the order of their flags within each kind: the image's copy,
container disks, claims, DataSources, cloned claims, blank volumes, imported volumes, empty disks.

--image needs an image that "image pull" has brought to the namespace, or, with --pull and --apply, one of the
catalogue, which is pulled first if it is not there. The disk is a claim of its own, NAME-disk,
which is printed or created with the VM and stays when the VM is deleted. An image of another namespace,
NAMESPACE/NAME/VERSION, is copied by a VirtualMachineClone, which is printed or created instead of the claim and needs
the right to clone from there. An image that is a DataSource is copied by CDI, to a DataVolume of the VM, which goes
with it. Your SSH key lets you log in unless flags say otherwise.

A preference chooses the disks' bus; without one it is sata. An instance type and a preference are taken from the
labels of the volume that is booted from, where it is a claim or imported and has such labels.`,
		Example: cli.Examples(f.Program, `
			# Print a manifest, then run it
			virtctl create vm --name demo --container-disk quay.io/containerdisks/fedora:latest > demo.yaml

			# From an image of the catalogue, which is pulled if the namespace has it not yet
			virtctl create vm --name demo --image debian/13 --pull --apply

			# From an image that namespace golden shares
			virtctl create vm --name demo --image golden/debian/13 --apply

			# Create and start a VM with a login
			virtctl create vm --name demo --container-disk quay.io/containerdisks/fedora:latest \
			  --user me --ssh-key ~/.ssh/id_ed25519.pub --apply

			# Two cores, 4 GiB, boot from a claim, with an empty disk for data
			virtctl create vm --cpu 2 --memory 4Gi --volume-pvc src:my-disk,bootorder:1 --volume-empty size:10Gi

			# The size of an instance type, the devices of a preference of this namespace
			virtctl create vm --instancetype u1.small --preference virtualmachinepreference/fedora --pvc my-disk

			# Size and devices as the claim's labels have them
			virtctl create vm --volume-pvc src:my-disk --infer-instancetype --infer-preference

			# Import a disk (with CDI)
			virtctl create vm --volume-import type:http,url:https://example.com/disk.qcow2,size:10Gi

			# A second interface on a network of Multus, with an address that it keeps
			virtctl create vm --pvc my-disk --network red=red-net --ip red=192.0.2.7 --apply

			# SSH keys from a Secret, which the guest agent keeps current
			virtctl create vm --pvc my-disk --user me --access-cred type:ssh,src:my-keys

			# Own cloud-init user data
			virtctl create vm --pvc my-disk --cloud-init-user-data $(base64 -w0 user-data.yaml)`),
		Args: cli.Args(0, 0, "no arguments; the name is given with --name"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(cmd); err != nil {
				return err
			}
			return RunVM(cmd.Context(), o)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *VMOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.VM.Name, "name", "", "`NAME` of the VM; a random one when not given")
	flags.StringVar(&o.VM.Memory, "memory", create.DefaultMemory,
		"Memory of the guest, a `QUANTITY` such as 512Mi or 4Gi")
	flags.StringVar(&o.VM.DiskBus, "disk-bus", "",
		"`BUS` of all disks: "+strings.Join(create.DiskBuses(), ", ")+" (default the preference's, or sata)")
	flags.Var((*cli.Count)(&o.VM.CPU), "cpu", "`NUMBER` of CPU cores (default 1)")
	flags.StringVar(&o.VM.RunStrategy, "run-strategy", string(create.DefaultRunStrategy),
		"When the VM runs, a `STRATEGY`: "+strings.Join(create.RunStrategies(), ", "))
	flags.Var(&o.GracePeriod, "termination-grace-period",
		"Time the guest is given to shut down, in seconds or as a duration")
	flags.StringVar(&o.VM.Instancetype, "instancetype", "",
		"Instance type with CPUs and memory, a `NAME` or virtualmachineinstancetype/NAME for one of the namespace")
	flags.BoolVar(&o.Infer, "infer-instancetype", true,
		"Take the instance type from the labels of the volume that is booted from; an error if it has none, when given")
	flags.StringVar(&o.VM.InferInstancetype.From, "infer-instancetype-from", "",
		"Take the instance type from the labels of this `VOLUME`")
	flags.StringVar(&o.VM.Preference, "preference", "",
		"Preference for devices and firmware, a `NAME` or virtualmachinepreference/NAME for one of the namespace")
	flags.BoolVar(&o.InferPreference, "infer-preference", true,
		"Take the preference from the labels of the volume that is booted from; an error if it has none, when given")
	flags.StringVar(&o.VM.InferPreference.From, "infer-preference-from", "",
		"Take the preference from the labels of this `VOLUME`")
	flags.StringVar(&o.Image, "image", "",
		"Boot from a copy of a pulled `IMAGE`: NAME, NAME/VERSION, or NAMESPACE/NAME/VERSION of another namespace")
	flags.StringVar(&o.ImageSize, "image-size", "", "`SIZE` of that copy, such as 20Gi (default the image's)")
	flags.BoolVar(&o.Pull, "pull", false, "Pull the image first if the namespace has it not; with --apply")
	o.Volumes.addFlags(flags)
	flags.StringVar(&o.VM.CloudInit.User, "user", "", "`ACCOUNT` in the guest that the password and SSH keys are for")
	flags.StringVar(&o.PasswordFile, "password-file", "", "`FILE` with that account's password; - is stdin")
	flags.StringArrayVar(&o.SSHKeys, "ssh-key", nil,
		"SSH public `KEY` of that account, several with commas between them, or a file with keys (can be repeated)")
	flags.BoolVar(&o.GAManageSSH, "ga-manage-ssh", false,
		"Let the guest agent write SSH keys where SELinux would not let it")
	flags.StringArrayVar(&o.AccessCreds, "access-cred", nil, "Secret with SSH keys or passwords to put into the "+
		"guest, as `src:SECRET[,type:ssh|password][,method:ga|nocloud|configdrive][,user:ACCOUNT]` (can be repeated)")
	flags.StringVar(&o.VM.MAC, "mac", "",
		"`MAC` address of the guest's interface on the pod network (default one that no other VM has; either stays)")
	addNetworkFlags(o, flags)
	flags.StringVar(&o.VM.CloudInit.Source, "cloud-init", create.CloudInitNoCloud, "cloud-init data `SOURCE`: "+
		strings.Join(create.CloudInitSources(), ", "))
	flags.StringVar(&o.VM.CloudInit.UserData, "cloud-init-user-data", "",
		"cloud-init user data in `BASE64`, instead of --user, --password-file and --ssh-key")
	flags.StringVar(&o.VM.CloudInit.NetworkData, "cloud-init-network-data", "", "cloud-init network data in `BASE64`")
	o.Volumes.addDeprecated(flags)
	flags.BoolVar(&o.Apply, "apply", false, "Create the VM in the cluster instead of printing its manifest")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "run-strategy", create.RunStrategies()...)
	cli.CompleteFlag(cmd, "disk-bus", create.DiskBuses()...)
	cli.CompleteFlag(cmd, "cloud-init", create.CloudInitSources()...)
	completioncmd.Flag(cmd, "instancetype", completioncmd.Instancetypes(o.Factory))
	completioncmd.Flag(cmd, "preference", completioncmd.Preferences(o.Factory))
	completioncmd.Flag(cmd, "pvc", completioncmd.Claims(o.Factory))
	completioncmd.Flag(cmd, "image", completioncmd.Images(o.Factory))
}

// Complete fills o.VM from the flags, the files they name and the kubeconfig.
func (o *VMOptions) Complete(cmd *cobra.Command) error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if o.DryRun == cli.DryRunServer && !o.Apply {
		o.Apply = true // asking the server is what an apply does
	}
	if o.VM.Name == "" {
		if cmd.Flags().Changed("name") {
			return cli.UsageErrorf("--name: must not be empty")
		}
		o.VM.Name = "vm-" + o.Factory.RandomName(5)
	}
	if f := cmd.Flags().Lookup("namespace"); f != nil && f.Changed {
		o.VM.Namespace = f.Value.String()
	}
	if f := cmd.Flags().Lookup("password"); f != nil && f.Changed {
		return cli.UsageErrorf("--password is for the API server, as kubectl's; the guest's is read from a file: " +
			"--password-file FILE, or - for stdin")
	}
	if o.Image == "" && (cmd.Flags().Changed("image") || o.ImageSize != "") {
		return cli.UsageErrorf("which image? Name it with --image, such as --image=debian/13")
	}
	if err := o.completePull(); err != nil {
		return err
	}
	if cmd.Flags().Changed("mac") && o.VM.MAC == "" {
		return cli.UsageErrorf("--mac: must not be empty")
	}
	if cmd.Flags().Changed("cpu") && o.VM.CPU == 0 {
		return cli.UsageErrorf("--cpu: must be at least 1")
	}
	o.VM.TerminationGracePeriodSeconds = int64(o.GracePeriod)
	err := o.completeNetworks()
	if err != nil {
		return err
	}
	if o.VM.Volumes, err = o.Volumes.parse(o.Factory.RandomName); err != nil {
		return err
	}
	if o.VM.Sysprep, err = o.Volumes.sysprepSource(cmd.Flags().Changed("volume-sysprep")); err != nil {
		return err
	}
	if o.VM.AccessCredentials, err = accessCredentials(o.AccessCreds); err != nil {
		return err
	}
	if err := o.completeReferences(cmd); err != nil {
		return err
	}
	if !cmd.Flags().Changed("cloud-init") {
		o.VM.CloudInit.Source = "" // there is one if there is something to configure
	}
	if cmd.Flags().Changed("ga-manage-ssh") {
		o.VM.CloudInit.GAManageSSH = &o.GAManageSSH
	}
	if o.PasswordFile != "" {
		if o.VM.CloudInit.Password, err = readPassword(o.Factory.IO.In, o.PasswordFile); err != nil {
			return err
		}
	}
	o.VM.CloudInit.SSHKeys, err = readKeys(o.SSHKeys)
	return err
}

// completeReferences reads the flags about instance type and preference, of which some exclude others.
func (o *VMOptions) completeReferences(cmd *cobra.Command) error {
	flags := cmd.Flags()
	for _, group := range [][]string{
		{"memory", "instancetype", "infer-instancetype", "infer-instancetype-from"},
		{"cpu", "instancetype", "infer-instancetype", "infer-instancetype-from"},
		{"preference", "infer-preference", "infer-preference-from"},
	} {
		given := ""
		for _, name := range group {
			switch {
			case !flags.Changed(name):
			case given != "":
				return cli.UsageErrorf("--%s and --%s exclude each other; remove one", given, name)
			default:
				given = name
			}
		}
	}
	o.VM.MemoryGiven = flags.Changed("memory")
	o.VM.InferInstancetype.Off = !o.Infer
	o.VM.InferInstancetype.Explicit = flags.Changed("infer-instancetype") || flags.Changed("infer-instancetype-from")
	o.VM.InferPreference.Off = !o.InferPreference
	o.VM.InferPreference.Explicit = flags.Changed("infer-preference") || flags.Changed("infer-preference-from")
	return nil
}

// RunVM builds the VM, then prints or applies it.
func RunVM(ctx context.Context, o *VMOptions) error {
	var copied *imageCopy
	if o.Image != "" {
		c, namespace, err := o.Factory.Scope()
		if err != nil {
			return err
		}
		if copied, err = o.completeImage(ctx, c, namespace); err != nil {
			return err
		}
	}
	vm, err := create.VM(o.VM)
	if err != nil {
		return flagError(err)
	}
	unsupported, err := validate(vm)
	if err != nil {
		return err
	}
	c := o.VM.CloudInit
	if strings.EqualFold(c.Source, create.CloudInitNone) && (c.Specified() || c.GAManageSSH != nil) {
		fmt.Fprintln(o.Factory.IO.ErrOut,
			"warning: --cloud-init none: --user, --ssh-key and the other options for cloud-init have no effect")
	}
	if !store.HasSystem(&vm.Spec.Template.Spec) {
		fmt.Fprintln(o.Factory.IO.ErrOut, "warning: the VM has no disk to boot from; --image, --container-disk, --pvc "+
			"and the --volume flags give it one")
	}
	for _, warning := range unsupported {
		fmt.Fprintf(o.Factory.IO.ErrOut, "warning: %s\n", warning)
	}
	if !o.Apply || o.DryRun == cli.DryRunClient {
		return o.printManifest(copied, vm)
	}
	return o.apply(ctx, copied, vm)
}

func (o *VMOptions) printManifest(copied *imageCopy, vm *v1.VirtualMachine) error {
	manifest, err := create.Manifest(vm)
	if err != nil {
		return err
	}
	if copied == nil {
		return o.Output.Manifest(manifest, o.Factory.IO.Out)
	}
	both, err := copied.manifestWith(manifest)
	if err != nil {
		return err
	}
	return o.Output.Manifest(both, o.Factory.IO.Out)
}

func (o *VMOptions) apply(ctx context.Context, copied *imageCopy, vm *v1.VirtualMachine) error {
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	ns, err := o.Factory.NamespaceOf(vm)
	if err != nil {
		return err
	}
	created, err := o.make(ctx, c, ns, copied, vm)
	if err != nil {
		return err
	}
	return o.Output.Created(o.DryRun, "virtualmachine.kubevirt.io", created, o.Factory.IO.Out)
}

// make creates the VM, and before it the copy of its image, if there is one.
func (o *VMOptions) make(
	ctx context.Context, c *client.Client, ns string, copied *imageCopy, vm *v1.VirtualMachine,
) (*v1.VirtualMachine, error) {
	err := o.checkReferents(ctx, c, ns, vm)
	if err != nil {
		return nil, err
	}
	undo := func(error) error { return nil }
	if copied != nil {
		if undo, err = o.makeCopy(ctx, c, ns, copied); err != nil {
			return nil, fmt.Errorf("create VM %s/%s: %w", ns, vm.Name, err)
		}
	}
	created, err := c.CreateVM(ctx, ns, vm, o.DryRun == cli.DryRunServer)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create VM %s/%s: %w", ns, vm.Name, err), undo(err))
	}
	return created, nil
}

// checkReferents refuses an instance type or preference that is not there, as `set` does.
func (o *VMOptions) checkReferents(ctx context.Context, c *client.Client, ns string, vm *v1.VirtualMachine) error {
	var named []cli.Referent
	if m := vm.Spec.Instancetype; m != nil && m.Name != "" {
		named = append(named, cli.Referent{Field: "instancetype", Kind: m.Kind, Name: m.Name})
	}
	if m := vm.Spec.Preference; m != nil && m.Name != "" {
		named = append(named, cli.Referent{Field: "preference", Kind: m.Kind, Name: m.Name})
	}
	for _, r := range named {
		if err := o.Factory.CheckReferent(ctx, c, ns, r); err != nil {
			return fmt.Errorf("create VM %s/%s: --%s: %w; without --apply the manifest names one that is yet to be "+
				"made", ns, vm.Name, r.Field, err)
		}
	}
	return nil
}

// flagError returns a FieldError in the terms of the command line.
func flagError(err error) error {
	var field *create.FieldError
	if !errors.As(err, &field) {
		return err
	}
	if strings.HasPrefix(field.Field, "volume ") { // a volume's own name
		return cli.UsageErrorf("%s", field)
	}
	return cli.UsageErrorf("--%s", field)
}

// splitKeys puts keys that one flag has, with commas between them, on lines of their own. Other commas are a comment's.
func splitKeys(value string) string {
	var lines []string
	for rest := value; ; {
		at := 0
		for {
			next := strings.IndexByte(rest[at:], ',')
			if next < 0 {
				return strings.Join(append(lines, rest), "\n")
			}
			at += next + 1
			if create.BeginsWithKey(rest[at:]) {
				break
			}
		}
		lines, rest = append(lines, rest[:at-1]), rest[at:]
	}
}

// readKeys replaces the names of files among the keys by the keys in them; comments and empty lines are
// left out.
func readKeys(values []string) ([]string, error) {
	var keys []string
	for _, value := range values {
		text := splitKeys(value)
		if !strings.ContainsAny(strings.TrimSpace(value), " \n") {
			data, err := os.ReadFile(value)
			if err != nil {
				return nil, cli.UsageErrorf("--ssh-key: %s, and it is no public key itself",
					cli.WhyUnreadable(value, err))
			}
			text = string(data)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if strings.Contains(line, "PRIVATE KEY") {
				return nil,
					cli.UsageErrorf("--ssh-key: %s holds a private key; give the public one, which ends in .pub", value)
			}
			if !create.IsPublicKey(line) {
				return nil, cli.UsageErrorf("--ssh-key: %q is no public key, which is TYPE BASE64 [COMMENT] such as "+
					"\"ssh-ed25519 AAAA… me@here\"", line)
			}
			keys = append(keys, line)
		}
	}
	return keys, nil
}
