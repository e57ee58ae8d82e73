// Package snapshotcmd is `virtctl snapshot`.
package snapshotcmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// NewCmdSnapshot makes `virtctl snapshot`.
func NewCmdSnapshot(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "snapshot",
		Short: "Take snapshots of virtual machines, and restore them",
		Long: `Take snapshots of virtual machines: of the VM and of its volumes, which the cluster's storage must be able to
snapshot. A snapshot can be restored over its VM, or as another one. "clone" makes a VM of a VM in one step.`,
	})
	cmd.AddCommand(NewCmdCreate(f), NewCmdList(f), NewCmdShow(f), NewCmdRestore(f), NewCmdDelete(f))
	return cmd
}

// checkName returns a usage error if a name is not valid.
func checkName(what, name string) error {
	if problems := content.IsDNS1123Subdomain(name); len(problems) > 0 {
		return cli.UsageErrorf("%q is not the name of a %s: %s", name, what, strings.Join(problems, "; "))
	}
	return nil
}

// bare returns a snapshot's name, also of snapshot/NAME.
func bare(arg string) string {
	for _, kind := range []string{"snapshot/", "vmsnapshot/", "virtualmachinesnapshot/"} {
		if name, ok := strings.CutPrefix(arg, kind); ok {
			return name
		}
	}
	return arg
}

// confirm asks whether to do what is said, unless yes says that it is answered. Where nobody can be asked --yes must be
// given. said is a sentence without its end, such as "this deletes snapshot s".
func confirm(ctx context.Context, f *cli.Factory, yes bool, said, question string) error {
	if yes {
		return nil
	}
	if !f.IO.CanAsk() {
		return cli.UsageErrorf("%s; add --yes to say that you mean it", said)
	}
	return cli.MustConfirm(ctx, f.IO, question)
}
