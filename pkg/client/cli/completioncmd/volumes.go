package completioncmd

import (
	"context"

	"github.com/spf13/cobra"

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

// Hotplugged completes a flag with the hotplugged volumes of the machine that is the first argument.
func Hotplugged(f *cli.Factory) cobra.CompletionFunc {
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
			return volume.Names(&vmi.Spec), nil
		}
		vm, err := c.VM(ctx, t.Namespace, t.Name)
		if err != nil || vm.Spec.Template == nil {
			return nil, err
		}
		return volume.Names(&vm.Spec.Template.Spec), nil
	})
}
