package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ConnectionWords returns the global flags that the user gave, each as one word: they choose the cluster, the user and
// the namespace, and a virtctl that ours starts must choose the same.
func ConnectionWords(cmd *cobra.Command) []string {
	var out []string
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		values := []string{f.Value.String()}
		if slice, ok := f.Value.(pflag.SliceValue); ok {
			values = slice.GetSlice()
		}
		for _, value := range values {
			out = append(out, "--"+f.Name+"="+value)
		}
	})
	return out
}
