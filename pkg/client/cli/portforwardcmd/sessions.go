package portforwardcmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// newCmdList makes `port-forward list`.
func newCmdList(f *cli.Factory) *cobra.Command {
	output, noHeaders := cli.NewOutput(), false
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List what is forwarded in the background",
		Example: cli.Examples(f.Program, `
			virtctl port-forward list
			virtctl port-forward list -o jsonpath='{.items[*].ports[*].address}'`),
		Args: cli.Args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			output.NoHeaders = noHeaders
			if err := output.Validate(); err != nil {
				return err
			}
			r, err := registry(f)
			if err != nil {
				return err
			}
			sessions, failed := r.List(cmd.Context())
			if output.Given() {
				err = output.Print(forward.NewSessionList(sessions), f.IO.Out)
			} else {
				err = table(f, sessions, noHeaders)
			}
			if err != nil {
				return err
			}
			return failed
		},
	}
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "Leave out the line of titles")
	output.AddFlags(cmd)
	return cmd
}

func table(f *cli.Factory, sessions []*forward.Session, noHeaders bool) error {
	if len(sessions) == 0 {
		fmt.Fprintln(f.IO.ErrOut, "No sessions found.")
		return nil
	}
	w := cli.NewTable(f.IO.Out)
	if !noHeaders {
		w.Row("ID", "NAMESPACE", "TARGET", "PORTS", "CONNECTIONS", "CONTEXT", "AGE")
	}
	for _, s := range sessions {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s->%d/%s", p.Address, p.TargetPort, p.Protocol))
		}
		for _, address := range s.Socks {
			ports = append(ports, address+"->socks5")
		}
		w.Row(s.Name, s.Namespace, orNone(s.Target), strings.Join(ports, ","), fmt.Sprint(s.Connections),
			orNone(s.Context), duration.HumanDuration(f.Now().Sub(s.CreationTimestamp.Time)))
	}
	return w.Flush()
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// newCmdStop makes `port-forward stop`.
func newCmdStop(f *cli.Factory) *cobra.Command {
	output, all := cli.NewOutput(), false
	cmd := &cobra.Command{
		Use:   "stop ID...",
		Short: "Stop what is forwarded in the background",
		Example: cli.Examples(f.Program, `
			virtctl port-forward stop k3f9a
			virtctl port-forward stop --all`),
		ValidArgsFunction: completeSessions(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && all:
				return cli.UsageErrorf("give IDs or --all, not both")
			case len(args) == 0 && !all:
				return cli.UsageErrorf("%s needs an ID, which `%s port-forward list` shows, or --all",
					cmd.CommandPath(), f.Program)
			}
			if err := output.Validate(); err != nil {
				return err
			}
			return stop(cmd.Context(), f, output, args, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "Stop all")
	output.AddFlags(cmd)
	return cmd
}

func stop(ctx context.Context, f *cli.Factory, output *cli.Output, ids []string, all bool) error {
	r, err := registry(f)
	if err != nil {
		return err
	}
	var errs []error
	if all {
		sessions, err := r.List(ctx)
		if err != nil {
			errs = append(errs, err)
		}
		for _, s := range sessions {
			ids = append(ids, s.Name)
		}
	}
	var stopped []*forward.Session
	for _, id := range ids {
		s, err := r.Stop(ctx, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		stopped = append(stopped, s)
		if !output.Given() {
			fmt.Fprintf(f.IO.Out, "port-forward %s stopped\n", s.Name)
		}
	}
	if output.Given() {
		if err := printStopped(output, stopped, all, f.IO.Out); err != nil {
			errs = append(errs, err)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// printStopped prints one session as itself, and several as a list.
func printStopped(output *cli.Output, stopped []*forward.Session, all bool, w io.Writer) error {
	if len(stopped) == 1 && !all {
		return output.Print(stopped[0], w)
	}
	return output.Print(forward.NewSessionList(stopped), w)
}
