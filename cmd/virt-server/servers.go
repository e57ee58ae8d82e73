//go:build !launcher && !exporter

package main

import (
	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/controller"
	"github.com/virtkit/virtkit/pkg/handler"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/version"
	"github.com/virtkit/virtkit/pkg/virtapi"
)

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "virt-server",
		Short:         "The servers of virtkit",
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		_, err := config.LimitMemory()
		return err
	}
	root.AddCommand(virtapi.NewCommand(), controller.NewCommand(), handler.NewCommand())
	return root
}
