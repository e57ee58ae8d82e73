package installcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	action "github.com/virtkit/virtkit/pkg/client/action/install"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// UninstallOptions of `virtctl uninstall`.
type UninstallOptions struct {
	Factory   *cli.Factory
	Yes       bool
	DeleteVMs bool
	DryRun    cli.DryRun
	Wait      bool
	Timeout   time.Duration
	Output    *cli.Output
}

// NewCmdUninstall makes the command.
func NewCmdUninstall(f *cli.Factory) *cobra.Command {
	o := &UninstallOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove virtkit from the cluster",
		Long: `Remove virtkit from the cluster: components, configuration, rights, namespace kubevirt and
the resource definitions.

Refuses while there are virtual machines, unless --delete-vms is given. Their volumes stay.`,
		Example: cli.Examples(f.Program, `
			virtctl uninstall
			virtctl uninstall --dry-run=server -o name
			virtctl uninstall --yes --delete-vms`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return RunUninstall(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.Yes, "yes", "y", false, "Do not ask")
	flags.BoolVar(&o.DeleteVMs, "delete-vms", false, "Shut down and delete all virtual machines of the cluster first")
	o.DryRun.AddFlag(cmd)
	flags.BoolVar(&o.Wait, "wait", true, "Wait until everything is gone")
	flags.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "The most time to take")
	o.Output.AddFlags(cmd)
	return cmd
}

// RunUninstall asks unless Yes is set, and uninstalls.
func RunUninstall(ctx context.Context, o *UninstallOptions) error {
	objects, err := action.Objects(action.Settings{})
	if err != nil {
		return err
	}
	more, err := action.MonitoringObjects(action.DefaultAccount) // where they were never applied they are not there
	if err != nil {
		return err
	}
	objects = append(objects, more...)
	installer, err := newInstaller(o.Factory)
	if err != nil {
		return err
	}
	installed, err := installer.Installed(ctx, objects)
	if err != nil {
		return err
	}
	if !installed {
		if o.Output.Given() {
			return printObjects(o.Output, nil, o.Factory.IO.Out)
		}
		fmt.Fprintln(o.Factory.IO.Out, "virtkit is not installed; nothing to do")
		return nil
	}
	options := action.UninstallOptions{DeleteVMs: o.DeleteVMs, Wait: o.Wait}
	if o.DryRun != cli.DryRunNone {
		options.DryRun = action.DryRun(o.DryRun)
		if err := o.nameGuests(ctx, installer); err != nil {
			return err
		}
	} else if err := o.confirm(ctx, installer); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	progress := newProgress(o.Factory.IO)
	installer.Progress = progress.step
	deleted, err := installer.Uninstall(ctx, objects, options)
	progress.end()
	if o.DryRun == cli.DryRunNone {
		o.Factory.IO.Interrupted(err, "a part is deleted; `%s uninstall` again goes on", o.Factory.Program)
	}
	var guests *action.GuestsError
	if errors.As(err, &guests) && !o.DeleteVMs {
		return fmt.Errorf("%w; delete them first, or add --delete-vms", err)
	}
	if err != nil {
		return err
	}
	if o.Output.Given() {
		return printObjects(o.Output, deleted, o.Factory.IO.Out)
	}
	done := "is uninstalled"
	switch {
	case o.DryRun != cli.DryRunNone:
		done = "would be uninstalled"
	case !o.Wait:
		done = "is being uninstalled"
	}
	fmt.Fprintf(o.Factory.IO.Out, "virtkit %s: %d objects deleted%s\n", done, len(deleted), o.DryRun.Suffix())
	return nil
}

// nameGuests says in a dry run which virtual machines --delete-vms would delete: they are not of the installation's
// objects.
func (o *UninstallOptions) nameGuests(ctx context.Context, installer *action.Installer) error {
	if !o.DeleteVMs {
		return nil
	}
	guests, err := installer.Guests(ctx)
	if err != nil || len(guests) == 0 {
		return err
	}
	fmt.Fprintf(o.Factory.IO.ErrOut, "note: these would be shut down and deleted first: %s\n",
		strings.Join(guests, ", "))
	return nil
}

// confirm asks at the terminal. With nobody to ask it needs --yes.
func (o *UninstallOptions) confirm(ctx context.Context, installer *action.Installer) error {
	if o.Yes {
		return nil
	}
	streams := o.Factory.IO
	if !streams.InIsTTY {
		return cli.UsageErrorf("uninstalling removes virtkit from the whole cluster; add --yes to say that you mean it")
	}
	question := "Remove virtkit from " + o.Factory.Connection().Server
	if o.DeleteVMs {
		guests, err := installer.Guests(ctx)
		if err != nil {
			return err
		}
		question += fmt.Sprintf(" and delete its %d virtual machines", len(guests))
	}
	fmt.Fprint(streams.ErrOut, question+"? [y/N] ")
	answer, err := bufio.NewReader(streams.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &cli.ExitError{Code: cli.ExitFailure, Err: errors.New("nothing was removed")}
}
