// Package admcmd is `virtctl adm`: what administrators of an installation do.
package admcmd

import (
	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// NewCmdAdm makes the command and those below it.
func NewCmdAdm(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "adm",
		Short: "Manage the installation",
	})
	cmd.AddCommand(NewCmdLogVerbosity(f))
	return cmd
}
