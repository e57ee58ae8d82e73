package completioncmd

import (
	"strings"

	"github.com/spf13/cobra"
)

// Paths completes the NAME: of a file in a machine, with the names that machines gives, and files where the word looks
// like one or no name begins so.
func Paths(machines cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		if strings.ContainsAny(word, ":/.~") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		found, _ := machines(cmd, nil, word)
		if len(found) == 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		for i, candidate := range found {
			name, about, described := strings.Cut(candidate, "\t")
			found[i] = name + ":"
			if described {
				found[i] += "\t" + about
			}
		}
		return found, cobra.ShellCompDirectiveNoSpace
	}
}
