package completioncmd

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Machines completes the arguments of a verb that takes NAME, vm/NAME, vmi/NAME, or a kind as its first word. others
// completes where no kind is said.
func Machines(f *cli.Factory, others func(*cli.Factory, int) cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		list, prefix, rest := others, "", toComplete
		if len(args) > 0 {
			if instance, ok := cli.KindOf(args[0]); ok {
				list = of(instance)
			}
		}
		if kind, name, typed := strings.Cut(toComplete, "/"); typed {
			instance, ok := cli.KindOf(kind)
			if !ok {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			list, prefix, rest = of(instance), kind+"/", name
		}
		found, directive := list(f, -1)(cmd, args, rest)
		var out []string
		for _, candidate := range found {
			name, _, _ := strings.Cut(candidate, "\t")
			if !slices.Contains(args, prefix+name) {
				out = append(out, prefix+candidate)
			}
		}
		return out, directive
	}
}

func of(instance bool) func(*cli.Factory, int) cobra.CompletionFunc {
	if instance {
		return VMIs
	}
	return VMs
}

// Nodes completes the names of nodes.
func Nodes(f *cli.Factory) cobra.CompletionFunc {
	return names(f, -1, func(ctx context.Context, c *client.Client, _ string) ([]string, error) {
		return c.Names(ctx, core, "", "nodes")
	})
}

// hostname is the label by which a node is chosen.
const hostname = "kubernetes.io/hostname="

// NodeLabels completes a flag of labels that a node must have with those that choose one node.
func NodeLabels(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		found, directive := Nodes(f)(cmd, nil, strings.TrimPrefix(toComplete, hostname))
		var out []string
		for _, node := range found {
			if label := hostname + node; strings.HasPrefix(label, toComplete) {
				out = append(out, label)
			}
		}
		return out, directive
	}
}
