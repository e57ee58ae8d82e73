// Package exposecmd is `virtctl expose`: a Service that leads to a virtual machine.
package exposecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/expose"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl expose`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	DryRun  cli.DryRun
	// Kind is "vm", "vmi" or "vmirs"; Word is how the user wrote it.
	Kind, Word, Name string
	Service          expose.Options
}

// kinds are the words for each kind.
var kinds = map[string][]string{
	"vm":    {"vm", "vms", "virtualmachine", "virtualmachines"},
	"vmi":   {"vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances"},
	"vmirs": {"vmirs", "vmirss", "virtualmachineinstancereplicaset", "virtualmachineinstancereplicasets"},
}

// NewCmdExpose makes `virtctl expose`.
func NewCmdExpose(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "expose (vm|vmi|vmirs) NAME --name SERVICE",
		Short: "Make a Service that leads to a virtual machine",
		Long: `Make a Service that leads to the guest of a virtual machine (vm), an instance (vmi), or to the guests of a replica set
(vmirs). Without --port it serves the ports that the interface on the pod's network lists.`,
		Example: cli.Examples(f.Program, `
			# SSH on a port of each node
			virtctl expose vm demo --name demo-ssh --port 22 --type NodePort

			# Port 8080 of the guests as port 80
			virtctl expose vmirs web --name web --port 80 --target-port 8080`),
		Args: cli.Args(1, 2, "vm, vmi or vmirs and a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			if cmd.Flags().Changed("port") && o.Service.Port == 0 {
				return cli.UsageErrorf("--port: 0 is not a port from 1 to 65535")
			}
			return Run(cmd.Context(), o)
		},
		ValidArgsFunction: o.completeArgs(f),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s := &o.Service
	flags.StringVar(&s.Name, "name", "", "`NAME` of the Service")
	flags.Int32Var(&s.Port, "port", 0, "`PORT` that the Service serves")
	flags.StringVar(&s.TargetPort, "target-port", "",
		"`PORT` of the guest, a number or a name; that of --port when not given")
	flags.StringVar(&s.PortName, "port-name", "", "`NAME` of the port")
	flags.StringVar(&s.Protocol, "protocol", "TCP", "`PROTOCOL` of the port: TCP, UDP")
	flags.StringVar(&s.Type, "type", "ClusterIP", "`TYPE` of the Service: "+strings.Join(expose.Types(), ", "))
	flags.Int32Var(&s.NodePort, "node-port", 0, "`PORT` on each node, with --type NodePort or LoadBalancer; one is "+
		"chosen when not given")
	flags.StringVar(&s.ClusterIP, "cluster-ip", "", "`ADDRESS` of the Service; None makes it headless")
	flags.StringVar(&s.ExternalIP, "external-ip", "", "Another `ADDRESS`, not managed by the cluster, to accept")
	flags.StringVar(&s.LoadBalancerIP, "load-balancer-ip", "", "`ADDRESS` for the load balancer")
	flags.StringVar(&s.IPFamily, "ip-family", "", "`FAMILY` of the addresses: "+strings.Join(expose.Families(), "; "))
	flags.StringVar(&s.IPFamilyPolicy, "ip-family-policy", "", "`POLICY` for families: "+
		strings.Join(expose.Policies(), ", "))
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "protocol", "TCP", "UDP")
	cli.CompleteFlag(cmd, "type", expose.Types()...)
	cli.CompleteFlag(cmd, "ip-family", expose.Families()...)
	cli.CompleteFlag(cmd, "ip-family-policy", expose.Policies()...)
	return cmd
}

// kindOf returns the kind that a word names, "" where it names none.
func kindOf(word string) string {
	for kind, words := range kinds {
		if slices.Contains(words, strings.ToLower(word)) {
			return kind
		}
	}
	return ""
}

// complete reads TYPE NAME, or TYPE/NAME.
func (o *Options) complete(args []string) error {
	if err := o.Output.Validate(); err != nil {
		return err
	}
	if len(args) == 1 {
		kind, name, ok := strings.Cut(args[0], "/")
		if kindOf(args[0]) != "" {
			return cli.UsageErrorf("the name of the %s is missing", args[0])
		}
		if !ok {
			return cli.UsageErrorf("%q: say what it is: vm %[1]s, vmi %[1]s or vmirs %[1]s", args[0])
		}
		args = []string{kind, name}
	}
	o.Word, o.Name = strings.ToLower(args[0]), args[1]
	o.Kind = kindOf(o.Word)
	switch {
	case o.Kind == "":
		return cli.UsageErrorf("%q is not one of vm, vmi, vmirs", args[0])
	case o.Name == "":
		return cli.UsageErrorf("the name of the %s is missing", o.Kind)
	case o.Service.Name == "":
		return cli.UsageErrorf("--name is missing; it names the Service")
	}
	return nil
}

func (o *Options) completeArgs(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []string{"vm", "vmi", "vmirs"}, cobra.ShellCompDirectiveNoFileComp
		}
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := completioncmd.VMs(f, -1)
		switch strings.ToLower(args[0]) {
		case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances":
			names = completioncmd.VMIs(f, -1)
		case "vmirs", "vmirss", "virtualmachineinstancereplicaset", "virtualmachineinstancereplicasets":
			names = completioncmd.ReplicaSets(f)
		}
		return names(cmd, nil, toComplete)
	}
}

// Run looks the object up and makes the Service.
func Run(ctx context.Context, o *Options) error {
	var field *expose.FieldError
	if _, err := expose.Service(o.Service, nil, &v1.VirtualMachineInstanceSpec{}); errors.As(err, &field) {
		return cli.UsageErrorf("--%s", field) // no cluster is needed to say so
	}
	c, ns, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	o.Service.Namespace = ns
	selector, spec, err := lookUp(ctx, c, o.Kind, ns, o.Name)
	if err != nil {
		return fmt.Errorf("expose %s %s/%s: %w", o.Kind, ns, o.Name, err)
	}
	service, err := expose.Service(o.Service, selector, spec)
	switch {
	case errors.As(err, &field):
		return cli.UsageErrorf("--%s", field)
	case errors.Is(err, expose.ErrNoPorts):
		return cli.UsageErrorf("%s", err)
	case err != nil:
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(service)
	if err != nil {
		return fmt.Errorf("write Service %s: %w", o.Service.Name, err)
	}
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	object := &unstructured.Unstructured{Object: content}
	if o.DryRun != cli.DryRunClient {
		if object, err = c.CreateObject(ctx, "/api/v1", ns, "services", object, o.DryRun == cli.DryRunServer); err !=
			nil {
			return fmt.Errorf("create Service %s/%s: %w", ns, o.Service.Name, err)
		}
	}
	if o.Output.Given() {
		return o.Output.Print(object, o.Factory.IO.Out)
	}
	_, err = fmt.Fprintf(o.Factory.IO.Out, "Service %s successfully created for %s %s%s\n", o.Service.Name, o.Word,
		o.Name, o.DryRun.Suffix())
	return err
}

// lookUp reads the object: how its pods are selected, and the spec of its instances.
func lookUp(
	ctx context.Context, c *client.Client, kind, ns, name string,
) (map[string]string, *v1.VirtualMachineInstanceSpec, error) {
	none := &v1.VirtualMachineInstanceSpec{}
	switch kind {
	case "vmi":
		vmi, err := c.VMI(ctx, ns, name)
		return expose.Selector(name), &vmi.Spec, err
	case "vmirs":
		set, err := c.ReplicaSet(ctx, ns, name)
		if err != nil {
			return nil, none, err
		}
		if set.Spec.Template != nil {
			none = &set.Spec.Template.Spec
		}
		selector, err := expose.ReplicaSetSelector(set)
		return selector, none, err
	default:
		vm, err := c.VM(ctx, ns, name)
		if err == nil && vm.Spec.Template != nil {
			none = &vm.Spec.Template.Spec
		}
		return expose.Selector(name), none, err
	}
}
