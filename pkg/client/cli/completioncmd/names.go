// Package completioncmd completes what the user types from what the cluster has, and is `virtctl completion`.
// A completion that fails says nothing (cobra's debug log apart) and never takes longer than two
// seconds: the user is in the middle of a line.
package completioncmd

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

const timeout = 2 * time.Second

// VMs completes the names of VirtualMachines, up to most of them on one line (-1 is no limit).
func VMs(f *cli.Factory, most int) cobra.CompletionFunc {
	return names(f, most, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		list, err := c.VMList(ctx, ns, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var out []string
		for i := range list.Items {
			out = append(out,
				cobra.CompletionWithDesc(list.Items[i].Name, string(list.Items[i].Status.PrintableStatus)))
		}
		return out, nil
	})
}

// VMIs completes the names of VirtualMachineInstances.
func VMIs(f *cli.Factory, most int) cobra.CompletionFunc {
	return names(f, most, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		list, err := c.VMIList(ctx, ns, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var out []string
		for i := range list.Items {
			out = append(out, cobra.CompletionWithDesc(list.Items[i].Name, string(list.Items[i].Status.Phase)))
		}
		return out, nil
	})
}

type lister func(ctx context.Context, c *client.Client, namespace string) ([]string, error)

func names(f *cli.Factory, most int, list lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		found, err := listNames(ctx, f, list)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
			return nil, cobra.ShellCompDirectiveError
		}
		return keep(found, args, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

func listNames(ctx context.Context, f *cli.Factory, list lister) ([]string, error) {
	c, ns, err := f.Scope()
	if err != nil {
		return nil, err
	}
	return list(ctx, c, ns)
}

// keep drops what does not begin with prefix and what is on the line already. A candidate is a name, with
// a description after a tab.
func keep(found, present []string, prefix string) []string {
	var out []string
	for _, candidate := range found {
		name, _, _ := strings.Cut(candidate, "\t")
		if strings.HasPrefix(name, prefix) && !slices.Contains(present, name) {
			out = append(out, candidate)
		}
	}
	return out
}

// Namespaces completes the names of the cluster's namespaces.
func Namespaces(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		c, err := f.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := c.Namespaces(ctx)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
			return nil, cobra.ShellCompDirectiveError
		}
		return keep(found, nil, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}
