package createcmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

const instancetypeGroup = "/apis/instancetype.kubevirt.io/v1beta1"

// KindOptions are what `virtctl create instancetype` and `create preference` have in common.
type KindOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	Apply   bool

	Scope create.Scope
	// what is "instancetype" or "preference".
	what string
	// required are the flags that must be given.
	required []string
	// build makes the object; Scope is complete.
	build func(create.Scope) (*unstructured.Unstructured, error)
}

// addFlags registers the common flags after the kind's own.
func (o *KindOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.Scope.Name, "name", "", "`NAME` of the "+o.what+"; a random one when not given")
	flags.BoolVar(&o.Scope.Namespaced, "namespaced", false,
		"For one namespace instead of the cluster; also when --namespace is given")
	flags.BoolVar(&o.Apply, "apply", false, "Create it in the cluster instead of printing its manifest")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
}

// complete fills the scope from the flags.
func (o *KindOptions) complete(cmd *cobra.Command) error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	for _, name := range o.required {
		if !cmd.Flags().Changed(name) {
			return cli.UsageErrorf("--%s is missing; every %s needs it", name, o.what)
		}
	}
	o.Apply = o.Apply || o.DryRun == cli.DryRunServer // asking the server is what an apply does
	if f := cmd.Flags().Lookup("namespace"); f != nil && f.Changed {
		o.Scope.Namespaced, o.Scope.Namespace = true, f.Value.String()
	}
	switch {
	case o.Scope.Name != "":
	case cmd.Flags().Changed("name"):
		return cli.UsageErrorf("--name: must not be empty")
	case o.Scope.Namespaced:
		o.Scope.Name = o.what + "-" + o.Factory.RandomName(5)
	default:
		o.Scope.Name = "cluster" + o.what + "-" + o.Factory.RandomName(5)
	}
	return nil
}

// NewCmdInstancetype makes `virtctl create instancetype`.
func NewCmdInstancetype(f *cli.Factory) *cobra.Command {
	o := &KindOptions{Factory: f, Output: cli.NewOutput(), what: "instancetype"}
	var it create.InstancetypeOptions
	var gpus, hostDevices []string
	o.required = []string{"cpu", "memory"}
	o.build = func(scope create.Scope) (*unstructured.Unstructured, error) {
		it.Scope = scope
		var err error
		if it.GPUs, err = devices("gpu", gpus); err != nil {
			return nil, err
		}
		if it.HostDevices, err = devices("hostdevice", hostDevices); err != nil {
			return nil, err
		}
		return create.Instancetype(it)
	}
	cmd := o.command(&cobra.Command{
		Use:   "instancetype",
		Short: "Create an instance type: CPUs and memory that VMs can name",
		Long: `Create a VirtualMachineClusterInstancetype, or with --namespaced a VirtualMachineInstancetype.
A VM takes its CPUs and memory from it with "create vm --instancetype NAME".`,
		Example: cli.Examples(f.Program, `
			# Print the manifest of an instance type for all namespaces
			virtctl create instancetype --name small --cpu 2 --memory 2Gi

			# Create one for this namespace
			virtctl create instancetype --name small --cpu 2 --memory 2Gi --namespaced --apply`),
	})
	flags := cmd.Flags()
	flags.Var((*cli.Count)(&it.CPU), "cpu", "`NUMBER` of vCPUs")
	flags.StringVar(&it.Memory, "memory", "", "Memory of the guest, a `QUANTITY` such as 512Mi or 4Gi")
	flags.StringArrayVar(&gpus, "gpu", nil, "GPU as `name:NAME,devicename:RESOURCE` (can be repeated)")
	flags.StringArrayVar(&hostDevices, "hostdevice", nil,
		"Host device as `name:NAME,devicename:RESOURCE` (can be repeated)")
	flags.StringVar(&it.IOThreadsPolicy, "iothreadspolicy", "", "`POLICY` for I/O threads: auto, shared")
	o.addFlags(cmd)
	cli.CompleteFlag(cmd, "iothreadspolicy", "auto", "shared")
	return cmd
}

// NewCmdPreference makes `virtctl create preference`.
func NewCmdPreference(f *cli.Factory) *cobra.Command {
	o := &KindOptions{Factory: f, Output: cli.NewOutput(), what: "preference"}
	var preference create.PreferenceOptions
	o.build = func(scope create.Scope) (*unstructured.Unstructured, error) {
		preference.Scope = scope
		return create.Preference(preference)
	}
	cmd := o.command(&cobra.Command{
		Use:   "preference",
		Short: "Create a preference: devices and firmware that VMs can name",
		Long: `Create a VirtualMachineClusterPreference, or with --namespaced a VirtualMachinePreference.
A VM takes from it what it does not say itself, with "create vm --preference NAME".`,
		Example: cli.Examples(f.Program, `
			# Print the manifest of a preference for all namespaces
			virtctl create preference --name linux --cpu-topology cores

			# Create one for this namespace
			virtctl create preference --name old --machine-type pc-q35-9.2 --namespaced --apply`),
	})
	flags := cmd.Flags()
	flags.StringVar(&preference.CPUTopology, "cpu-topology", "",
		"How vCPUs are laid out, a `TOPOLOGY`: sockets, cores, threads, spread, any")
	flags.StringVar(&preference.MachineType, "machine-type", "", "Machine `TYPE`, such as q35")
	flags.StringVar(&preference.VolumeStorageClass, "volume-storage-class", "",
		"Storage `CLASS` of volumes that are made for the VM")
	o.addFlags(cmd)
	cli.CompleteFlag(cmd, "cpu-topology", create.Topologies()...)
	return cmd
}

// command completes what the kind says of itself.
func (o *KindOptions) command(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cli.Args(0, 0, "no arguments; the name is given with --name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.complete(cmd); err != nil {
			return err
		}
		return RunKind(cmd.Context(), o)
	}
	cmd.Flags().SortFlags = false
	return cmd
}

func devices(flag string, values []string) ([]create.Device, error) {
	var out []create.Device
	for _, value := range values {
		p, err := create.ParseParameters(value)
		if err != nil {
			return nil, cli.UsageErrorf("--%s %q: %s", flag, value, err)
		}
		out = append(out, create.Device{Name: p.Must("name"), DeviceName: p.Must("devicename")})
		if err := p.Done(); err != nil {
			return nil, cli.UsageErrorf("--%s %q: %s", flag, value, err)
		}
	}
	return out, nil
}

// RunKind builds the object, then prints or applies it.
func RunKind(ctx context.Context, o *KindOptions) error {
	object, err := o.build(o.Scope)
	if err != nil {
		return flagError(err)
	}
	if !o.Apply || o.DryRun == cli.DryRunClient {
		return o.Output.Manifest(object, o.Factory.IO.Out)
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	resource, namespace, where := "virtualmachinecluster"+o.what+"s", "", ""
	if o.Scope.Namespaced {
		resource = "virtualmachine" + o.what + "s"
		if namespace, err = o.Factory.NamespaceOf(object); err != nil {
			return err
		}
		where = namespace + "/"
	}
	created, err := c.CreateObject(ctx, instancetypeGroup, namespace, resource, object, o.DryRun == cli.DryRunServer)
	if err != nil {
		return fmt.Errorf("create %s %s%s: %w", o.what, where, o.Scope.Name, err)
	}
	return o.Output.Created(o.DryRun, resource[:len(resource)-1]+".instancetype.kubevirt.io", created, o.Factory.IO.Out)
}
