// Package permittedcmd is `virtctl permitted-devices`.
package permittedcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/permitted"
	"github.com/virtkit/virtkit/pkg/client/action/verbosity"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Options of `virtctl permitted-devices`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
}

// NewCmdPermittedDevices makes the command.
func NewCmdPermittedDevices(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewNameless()}
	cmd := &cobra.Command{
		Use:   "permitted-devices",
		Short: "List the devices of nodes that virtual machines may have",
		Long: `List the resources that a virtual machine may ask for with deviceName in gpus and hostDevices: what
configuration.permittedHostDevices of the KubeVirt resource has. Host devices are on a PCI bus or USB, GPU devices are
mediated devices, as KubeVirt's virtctl says. Whether a node has one is in its allocatable resources.`,
		Example: cli.Examples(f.Program, `
			virtctl permitted-devices
			virtctl permitted-devices -o jsonpath='{.mediated[*]}'`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	o.Output.AddFlags(cmd)
	return cmd
}

// Run asks the server and prints.
func Run(ctx context.Context, o *Options) error {
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	kv, err := verbosity.Find(ctx, c)
	if err != nil {
		return err
	}
	report := permitted.Of(kv)
	if o.Output.Given() {
		return o.Output.Print(report, o.Factory.IO.Out)
	}
	// The spaces before the ends of lines are KubeVirt's, for scripts that compare.
	_, err = fmt.Fprintf(o.Factory.IO.Out, "Permitted Devices: \nHost Devices: \n%s \nGPU Devices: \n%s\n",
		strings.Join(append(report.PCI, report.USB...), ", "), strings.Join(report.Mediated, ", "))
	return err
}
