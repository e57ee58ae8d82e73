package create

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/action/create"
	"github.com/virtkit/virtkit/pkg/cli"
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
	GracePeriod  cli.Seconds
}

// NewCmdVM makes `virtctl create vm`; runF replaces RunVM in tests.
func NewCmdVM(f *cli.Factory, runF func(context.Context, *VMOptions) error) *cobra.Command {
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
cluster and the name is printed. Disks are attached in the order of their flags within each kind: container
disks, claims, empty disks.`,
		Example: cli.Examples(f.Program, `
			# Print a manifest, then run it
			virtctl create vm --name demo --container-disk quay.io/containerdisks/fedora:latest > demo.yaml

			# Create and start a VM with a login
			virtctl create vm --name demo --container-disk quay.io/containerdisks/fedora:latest \
			  --user me --ssh-key ~/.ssh/id_ed25519.pub --apply

			# Two cores, 4 GiB, boot from a claim, with an empty disk for data
			virtctl create vm --cpu 2 --memory 4Gi --volume-pvc src:my-disk,bootorder:1 --volume-empty size:10Gi

			# Own cloud-init user data
			virtctl create vm --pvc my-disk --cloud-init-user-data $(base64 -w0 user-data.yaml)`),
		Args: cli.Args(0, 0, "no arguments; the name is given with --name"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
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
	flags.StringVar(&o.VM.Memory, "memory", create.DefaultMemory, "Memory of the guest, a `QUANTITY` such as 512Mi or 4Gi")
	flags.Var((*cli.Count)(&o.VM.CPU), "cpu", "`NUMBER` of CPU cores (default 1)")
	flags.StringVar(&o.VM.RunStrategy, "run-strategy", string(create.DefaultRunStrategy), "When the VM runs, a `STRATEGY`: "+strings.Join(create.RunStrategies(), ", "))
	flags.Var(&o.GracePeriod, "termination-grace-period", "Time the guest is given to shut down, in seconds or as a duration")
	o.Volumes.addFlags(flags)
	flags.StringVar(&o.VM.CloudInit.Source, "cloud-init", create.CloudInitNoCloud, "cloud-init data `SOURCE`: noCloud, none")
	flags.StringVar(&o.VM.CloudInit.User, "user", "", "`ACCOUNT` in the guest that the password and SSH keys are for")
	flags.StringVar(&o.PasswordFile, "password-file", "", "`FILE` with that account's password; - is stdin")
	flags.StringArrayVar(&o.SSHKeys, "ssh-key", nil, "SSH public `KEY` of that account, or a file with keys (can be repeated)")
	flags.StringVar(&o.VM.CloudInit.UserData, "cloud-init-user-data", "", "cloud-init user data in `BASE64`, instead of --user, --password-file and --ssh-key")
	flags.StringVar(&o.VM.CloudInit.NetworkData, "cloud-init-network-data", "", "cloud-init network data in `BASE64`")
	flags.BoolVar(&o.Apply, "apply", false, "Create the VM in the cluster instead of printing its manifest")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "run-strategy", create.RunStrategies()...)
	cli.CompleteFlag(cmd, "cloud-init", create.CloudInitNoCloud, create.CloudInitNone)
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
		return cli.UsageErrorf("--password is for the API server, as kubectl's; the guest's is read from a file: --password-file FILE, or - for stdin")
	}
	if cmd.Flags().Changed("cpu") && o.VM.CPU == 0 {
		return cli.UsageErrorf("--cpu: must be at least 1")
	}
	o.VM.TerminationGracePeriodSeconds = int64(o.GracePeriod)
	var err error
	if o.VM.Volumes, err = o.Volumes.parse(); err != nil {
		return err
	}
	if o.PasswordFile != "" {
		if o.VM.CloudInit.Password, err = readPassword(o.Factory.IO.In, o.PasswordFile); err != nil {
			return err
		}
	}
	o.VM.CloudInit.SSHKeys, err = readKeys(o.SSHKeys)
	return err
}

// RunVM builds the VM, then prints or applies it.
func RunVM(ctx context.Context, o *VMOptions) error {
	vm, err := create.VM(o.VM)
	if err != nil {
		return flagError(err)
	}
	if err := validate(vm); err != nil {
		return err
	}
	if !o.Apply || o.DryRun == cli.DryRunClient {
		return o.printManifest(vm)
	}
	return o.apply(ctx, vm)
}

func (o *VMOptions) printManifest(vm *v1.VirtualMachine) error {
	manifest, err := create.Manifest(vm)
	if err != nil {
		return err
	}
	if !o.Output.Given() {
		o.Output.Format = "yaml"
	}
	return o.Output.Print(manifest, o.Factory.IO.Out)
}

func (o *VMOptions) apply(ctx context.Context, vm *v1.VirtualMachine) error {
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	ns := vm.Namespace
	if ns == "" {
		if ns, err = o.Factory.Namespace(); err != nil {
			return err
		}
	}
	created, err := c.CreateVM(ctx, ns, vm, o.DryRun == cli.DryRunServer)
	if err != nil {
		return fmt.Errorf("create VM %s/%s: %w", ns, vm.Name, err)
	}
	var obj runtime.Object = created
	if o.Output.Given() {
		return o.Output.Print(obj, o.Factory.IO.Out)
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "virtualmachine.kubevirt.io/%s created%s\n", created.Name, o.DryRun.Suffix())
	return err
}

// flagError says a FieldError in the words of the command line.
func flagError(err error) error {
	var field *create.FieldError
	if !errors.As(err, &field) {
		return err
	}
	if strings.Contains(field.Field, " ") {
		return cli.UsageErrorf("%s", field)
	}
	return cli.UsageErrorf("--%s", field)
}

// readKeys replaces the names of files among the keys by the keys in them; comments and empty lines are
// left out.
func readKeys(values []string) ([]string, error) {
	var keys []string
	for _, value := range values {
		text := value
		if !strings.ContainsAny(strings.TrimSpace(value), " \n") {
			data, err := os.ReadFile(value)
			if err != nil {
				return nil, cli.UsageErrorf("--ssh-key: %q is neither a public key nor a file that can be read: %s", value, err)
			}
			text = string(data)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if strings.Contains(line, "PRIVATE KEY") {
				return nil, cli.UsageErrorf("--ssh-key: %s holds a private key; give the public one, which ends in .pub", value)
			}
			if !isPublicKey(line) {
				return nil, cli.UsageErrorf("--ssh-key: %q is no public key, which is TYPE BASE64 [COMMENT] such as \"ssh-ed25519 AAAA… me@here\"", line)
			}
			keys = append(keys, line)
		}
	}
	return keys, nil
}

// isPublicKey recognises a line of authorized_keys: options if any, the type of the key, the key in base64, a
// comment. A key that was cut off while it was copied mostly is no base64, and would lock its owner out.
func isPublicKey(line string) bool {
	fields := strings.Fields(line)
	for i, field := range fields[:max(len(fields)-1, 0)] {
		for _, kind := range []string{"ssh-", "ecdsa-", "sk-"} {
			if strings.HasPrefix(field, kind) {
				_, err := base64.StdEncoding.DecodeString(fields[i+1])
				return err == nil
			}
		}
	}
	return false
}
