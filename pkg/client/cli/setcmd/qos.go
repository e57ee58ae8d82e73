package setcmd

import (
	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/set"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func newCmdQoS(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(), Field: "qos"}
	var q set.QoS
	cmd := &cobra.Command{
		Use:   "qos VM [flags]",
		Short: "Change the rate limits of a virtual machine's disks and interfaces",
		Long: `Change the rate limits of a virtual machine's disks and interfaces, also while its guest runs.

A disk has iops and bps, for reads and writes together, or read-iops, write-iops, read-bps and write-bps; an
interface has in, to the guest, and out, from it. iops are requests and all others bytes a second, with their unit:
50Mi. What is said of a disk or interface replaces all limits that it had; others keep theirs.`,
		Example: cli.Examples(f.Program, `
			virtctl set qos web --disk root=iops=500,bps=50Mi
			virtctl set qos web --disk data=read-bps=100Mi,write-bps=20Mi --interface default=in=10Mi,out=10Mi
			virtctl set qos web --disk root=none
			virtctl set qos web --none`),
		Args:              cli.Args(1, 1, "the name of a VM"),
		ValidArgsFunction: complete(f, nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := set.SetQoS(q)
			if err != nil {
				return cli.UsageErrorf("%s", err)
			}
			o.VM, o.Change = args[0], change
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&q.Disks, "disk", nil, "Limits of a disk: `NAME=LIMITS`, or NAME=none; may be given again")
	flags.StringArrayVar(&q.Interfaces, "interface", nil,
		"Limits of an interface: `NAME=LIMITS`, or NAME=none; may be given again")
	flags.BoolVar(&q.None, "none", false, "Take all limits away that are not given")
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}
