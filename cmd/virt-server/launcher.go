//go:build launcher

package main

import (
	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/launcher"
	"github.com/virtkit/virtkit/pkg/launcher/exporter"
	"github.com/virtkit/virtkit/pkg/launcher/uploader"
	"github.com/virtkit/virtkit/pkg/version"
)

func newCommand() *cobra.Command {
	cmd := launcher.NewCommand()
	cmd.AddCommand(uploader.NewCommand(), exporter.NewCommand())
	cmd.Version = version.Get().GitVersion
	cmd.SilenceUsage = true
	cmd.SilenceErrors = true
	return cmd
}
