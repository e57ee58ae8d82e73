package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func Main(args []string) int {
	root := &cobra.Command{Use: "virt-local", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(newControlPlaneCommand())
	root.SetArgs(args)
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}
