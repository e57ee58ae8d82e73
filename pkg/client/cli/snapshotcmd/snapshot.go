// Package snapshotcmd is `virtctl snapshot`.
package snapshotcmd

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

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

// checkName is a usage error where a name is none.
func checkName(what, name string) error {
	if problems := content.IsDNS1123Subdomain(name); len(problems) > 0 {
		return cli.UsageErrorf("%q is not the name of a %s: %s", name, what, strings.Join(problems, "; "))
	}
	return nil
}

// bare is a snapshot's name, also of snapshot/NAME.
func bare(arg string) string {
	for _, kind := range []string{"snapshot/", "vmsnapshot/", "virtualmachinesnapshot/"} {
		if name, ok := strings.CutPrefix(arg, kind); ok {
			return name
		}
	}
	return arg
}

// waiting waits for something whose stages a terminal shows; timeout 0 is no limit.
func waiting(
	ctx context.Context, f *cli.Factory, timeout cli.Timeout, what string,
	wait func(ctx context.Context, tell func(string)) error,
) error {
	if timeout.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout.Duration)
		defer cancel()
	}
	var stage atomic.Value
	stage.Store(what)
	return f.IO.WhileStage(func() string { return stage.Load().(string) }, func() error {
		return wait(ctx, func(said string) { stage.Store(what + ", " + said) })
	})
}

// errNotConfirmed is the end of what was not confirmed.
var errNotConfirmed = &cli.ExitError{Code: cli.ExitFailure, Err: errors.New("not confirmed; nothing was done")}

// confirm asks a question, unless yes says that it is answered. Where nobody can be asked --yes must be given.
func confirm(ctx context.Context, f *cli.Factory, yes bool, question string) error {
	if yes {
		return nil
	}
	if !f.IO.CanAsk() {
		return cli.UsageErrorf("%s Add --yes to say that you mean it", question)
	}
	sure, err := cli.Confirm(ctx, f.IO, question)
	if err == nil && !sure {
		err = errNotConfirmed
	}
	return err
}
