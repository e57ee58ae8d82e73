// Package logscmd is `virtctl logs`.
package logscmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/logs"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Options of `virtctl logs`.
type Options struct {
	Factory *cli.Factory
	Chosen  cli.Chosen
	Source  string
	Since   cli.Timeout
	Raw     bool

	logs.Options
}

// NewCmdLogs makes the command.
func NewCmdLogs(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Since: cli.Timeout{Unit: 1e9}}
	var sources []string
	for _, source := range logs.Sources {
		sources = append(sources, string(source))
	}
	cmd := &cobra.Command{
		Use:   "logs (NAME... | -l SELECTOR)",
		Short: "Show what the guest wrote to its serial port, or the logs of QEMU or the launcher",
		Long: `Show what the guest wrote to its serial port, or with --source qemu what QEMU complained of, or with
--source launcher the log of the launcher's pod.

The guest's and QEMU's logs are kept by the pod, the last megabytes of them; their lines have no times of their
own, and --since is exact to some ten seconds. With -f it goes on over restarts and migrations. On a terminal
the guest's escape sequences are left out, unless --raw is given.

Of several machines, or with -l, each line begins with the machine's name, as in "[web] ". Their logs come one
after the other, with -f at the same time. -l takes the VMs that are there at its beginning. The exit code is 3
when one of them is not there, after the logs of the others.`,
		Example: cli.Examples(f.Program, `
			virtctl logs demo
			virtctl logs demo -f --tail 20
			virtctl logs demo --source launcher --since 10m
			virtctl logs web db -f
			virtctl logs -l app=web --tail 20`),
		Args:              cli.Args(0, -1, "the names of VMs"),
		ValidArgsFunction: completioncmd.Machines(f, completioncmd.VMIs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Chosen.Names = args
			if err := o.Chosen.Validate(cmd, true); err != nil {
				return err
			}
			if err := o.validate(sources); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	o.Chosen.AddFlag(cmd)
	flags.StringVar(&o.Source, "source", string(logs.Serial), "Whose log: "+strings.Join(sources, ", "))
	flags.BoolVarP(&o.Follow, "follow", "f", false,
		"Go on with what is added; of the launcher's log, until its pod ends")
	flags.Int64Var(&o.Tail, "tail", -1, "How many `LINES` of the past; -1 is all")
	flags.Var(&o.Since, "since", "Only what is newer than a duration such as 5m")
	flags.BoolVar(&o.Timestamps, "timestamps", false, "Begin each line of the launcher's log with its time")
	flags.BoolVarP(&o.Previous, "previous", "p", false, "The log of the launcher's container before this one")
	flags.BoolVar(&o.Raw, "raw", false, "Leave the guest's escape sequences in, even for a terminal")
	cli.CompleteFlag(cmd, "source", sources...)
	return cmd
}

func (o *Options) validate(sources []string) error {
	switch {
	case !slices.Contains(sources, o.Source):
		return cli.UsageErrorf("--source: %q is not one of %s", o.Source, strings.Join(sources, ", "))
	case o.Tail < -1:
		return cli.UsageErrorf("--tail: %d is not a number of lines; -1 is all", o.Tail)
	case (o.Timestamps || o.Previous) && o.Source != string(logs.Launcher):
		return cli.UsageErrorf("--timestamps and --previous are for --source launcher")
	}
	return nil
}

// copy copies one machine's log.
func (o *Options) copy(
	ctx context.Context, c *client.Client, target cli.Target, reading logs.Options, out io.Writer,
) error {
	err := logs.Copy(ctx, c, target.Namespace, target.Name, reading, out)
	said := o.Factory.NotRunning(ctx, c, target, err)
	if said == err { //nolint:errorlint // whether it is another one
		return err
	}
	if apierrors.IsNotFound(said) {
		return said
	}
	if reading.Follow { // of the launcher's log, which does not wait for a pod
		return fmt.Errorf("%w; its logs are gone with its pod", said)
	}
	return fmt.Errorf("%w; its logs are gone with its pod, and -f waits for the next one unless --source is launcher",
		said)
}

// Run copies the logs to standard output.
func Run(ctx context.Context, o *Options) error {
	c, targets, err := o.Chosen.Targets(ctx, o.Factory)
	if err != nil {
		return err
	}
	reading := o.Options
	reading.Source = logs.Source(o.Source)
	if o.Since.Duration > 0 {
		reading.Since = o.Factory.Now().Add(-o.Since.Duration)
	}
	reading.Note = func(text string) { fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s\n", text) }
	plain := o.Factory.IO.OutIsTTY && !o.Raw
	out := o.Factory.IO.RawOut()
	if plain {
		out = o.Factory.IO.Out
	}
	if o.Chosen.Several() {
		return o.several(ctx, c, targets, reading, out, plain)
	}
	if plain {
		out = cli.Plain(out)
	}
	return o.copy(ctx, c, targets[0], reading, out)
}
