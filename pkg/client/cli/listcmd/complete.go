package listcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/list"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/sortby"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// kindOf returns the kind that a first word chooses, when it is one.
func kindOf(word string) (list.Kind, bool) {
	switch strings.ToLower(word) {
	case "vm", "vms", "virtualmachine", "virtualmachines":
		return list.VMs, true
	case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances":
		return list.VMIs, true
	case "all":
		return list.All, true
	}
	return list.VMs, false
}

// completeArgs completes the kind and the names.
func completeArgs(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		names := completioncmd.VMs
		if len(args) > 0 {
			if kind, ok := sets.KindOf(args[0]); ok {
				return completioncmd.SetsOf(f, kind)(cmd, args, toComplete)
			}
			if kind, _ := kindOf(args[0]); kind == list.VMIs {
				names = completioncmd.VMIs
			}
		}
		found, directive := names(f, -1)(cmd, args, toComplete)
		if len(args) == 0 {
			// The kinds are there without a cluster.
			found, directive = append([]string{"vm", "vmi", "all", "vmpool", "vmirs"}, found...),
				cobra.ShellCompDirectiveNoFileComp
		}
		return found, directive
	}
}

// completeSortBy completes the columns of what the first word chooses.
func completeSortBy(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		if _, ok := sets.KindOf(args[0]); ok {
			return sortby.Names(sets.Columns), cobra.ShellCompDirectiveNoFileComp
		}
	}
	return sortby.Names(list.Columns), cobra.ShellCompDirectiveNoFileComp
}
