//go:build launcher

package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/launcher"
	"github.com/virtkit/virtkit/pkg/launcher/uploader"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/version"
)

func newCommand() *cobra.Command {
	var cmd *cobra.Command
	if filepath.Base(os.Args[0]) == names.VirtFreezer { // a link to this program
		cmd = launcher.NewFreezerCommand()
	} else {
		cmd = launcher.NewCommand()
		cmd.AddCommand(uploader.NewCommand())
	}
	cmd.Version = version.Get().GitVersion
	cmd.SilenceUsage = true
	cmd.SilenceErrors = true
	return cmd
}
