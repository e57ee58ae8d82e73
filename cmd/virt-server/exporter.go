//go:build exporter

package main

import (
	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/exporter"
	"github.com/virtkit/virtkit/pkg/exporter/proxy"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/version"
)

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           names.VirtExport,
		Short:         "The servers of VirtualMachineExports",
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(exporter.NewCommand(), proxy.NewCommand())
	return root
}
