// Package createcmd is `virtctl create`: objects from flags, printed or applied.
package createcmd

import (
	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// NewCmdCreate makes `virtctl create`, which holds a command for each kind.
func NewCmdCreate(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "create",
		Short: "Create a virtual machine, an instance type, a preference or a clone from flags",
	})
	cmd.AddCommand(NewCmdVM(f), NewCmdInstancetype(f), NewCmdPreference(f), NewCmdClone(f))
	return cmd
}
