package completioncmd

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// flagNames completes a flag's value, whatever arguments there are.
func flagNames(
	f *cli.Factory, list func(ctx context.Context, c *client.Client, namespace string, args []string) ([]string, error),
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return names(f, -1, func(ctx context.Context, c *client.Client, namespace string) ([]string, error) {
			return list(ctx, c, namespace, args)
		})(cmd, nil, toComplete)
	}
}

// MachineVolumes completes the name of a VM, and then that of one of its volumes on claims.
func MachineVolumes(f *cli.Factory) cobra.CompletionFunc {
	machines := VMs(f, 1)
	volumes := volumesOf(f, volume.OnClaims)
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return machines(cmd, args, toComplete)
		case 1:
			return volumes(cmd, args, toComplete)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// ManyVolumes completes the name of a VM, and then those of its volumes on claims.
func ManyVolumes(f *cli.Factory) cobra.CompletionFunc {
	one := MachineVolumes(f)
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		found, directive := one(cmd, args[:min(1, len(args))], toComplete)
		if len(args) == 0 {
			return found, directive
		}
		return slices.DeleteFunc(found, func(name string) bool { return slices.Contains(args[1:], name) }), directive
	}
}

// StorageClasses completes the names of StorageClasses.
func StorageClasses(f *cli.Factory) cobra.CompletionFunc {
	return names(f, -1, func(ctx context.Context, c *client.Client, _ string) ([]string, error) {
		return c.Names(ctx, "/apis/storage.k8s.io/v1", "", "storageclasses")
	})
}

// Hotplugged completes a flag with the hotplugged volumes of the machine that is the first argument.
func Hotplugged(f *cli.Factory) cobra.CompletionFunc { return volumesOf(f, volume.Names) }

// volumesOf completes with volumes of the machine that is the first argument.
func volumesOf(f *cli.Factory, of func(*v1.VirtualMachineInstanceSpec) []string) cobra.CompletionFunc {
	return flagNames(f, func(ctx context.Context, c *client.Client, namespace string, args []string) ([]string, error) {
		if len(args) == 0 {
			return nil, nil
		}
		t, err := cli.ParseTarget(args[0], namespace)
		if err != nil {
			return nil, err
		}
		vmi, err := c.VMI(ctx, t.Namespace, t.Name)
		if err == nil {
			return of(&vmi.Spec), nil
		}
		vm, err := c.VM(ctx, t.Namespace, t.Name)
		if err != nil || vm.Spec.Template == nil {
			return nil, err
		}
		return of(&vm.Spec.Template.Spec), nil
	})
}
