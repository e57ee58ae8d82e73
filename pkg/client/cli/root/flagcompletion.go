package root

import (
	"iter"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// addFlagCompletions completes the connection flags: from the kubeconfig what it lists, from the cluster the
// namespaces.
func addFlagCompletions(root *cobra.Command, f *cli.Factory) {
	fromConfig := func(names func(clientcmdapi.Config) iter.Seq[string]) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			raw, err := f.Flags.Loader().RawConfig()
			if err != nil {
				cobra.CompErrorln(err.Error())
				return nil, cobra.ShellCompDirectiveError
			}
			return slices.Sorted(names(raw)), cobra.ShellCompDirectiveNoFileComp
		}
	}
	funcs := map[string]cobra.CompletionFunc{
		"namespace": completioncmd.Namespaces(f),
		"context":   fromConfig(func(c clientcmdapi.Config) iter.Seq[string] { return maps.Keys(c.Contexts) }),
		"cluster":   fromConfig(func(c clientcmdapi.Config) iter.Seq[string] { return maps.Keys(c.Clusters) }),
		"user":      fromConfig(func(c clientcmdapi.Config) iter.Seq[string] { return maps.Keys(c.AuthInfos) }),
	}
	for name, fn := range funcs {
		if err := root.RegisterFlagCompletionFunc(name, fn); err != nil {
			panic(err) // no such flag: a programming error
		}
	}
}
