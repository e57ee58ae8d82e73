package completioncmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestPaths(t *testing.T) {
	complete := Paths(func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		if !strings.HasPrefix("demo", word) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{"demo\tRunning", "demo2"}, cobra.ShellCompDirectiveNoFileComp
	})
	for word, want := range map[string][]string{
		"":         {"demo:\tRunning", "demo2:"},
		"de":       {"demo:\tRunning", "demo2:"},
		"notes":    nil,
		"./demo":   nil,
		"demo:/et": nil,
	} {
		directive := cobra.ShellCompDirectiveDefault
		if want != nil {
			directive = cobra.ShellCompDirectiveNoSpace
		}
		if got, said := complete(nil, []string{"a"}, word); !slices.Equal(got, want) || said != directive {
			t.Errorf("%q: %q, directive %d", word, got, said)
		}
	}
}
