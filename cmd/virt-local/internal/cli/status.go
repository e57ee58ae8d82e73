package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/csi"
	"github.com/virtkit/virtkit/pkg/waits"
)

func newStatusCommand(w *which) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster's nodes and processes",
		Long:  "Show the cluster's nodes and processes. The exit code is 0 if all is well, else 1.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runStatus(cmd.Context(), w, output, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json for a form that programs read")
	return c
}

func runStatus(ctx context.Context, w *which, output string, out io.Writer) error {
	if output != "" && output != "json" {
		return fmt.Errorf("unknown --output %q: use json", output)
	}
	in, err := w.loadAsRoot()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, waits.Scaled(10*time.Second))
	defer cancel()
	s, err := cluster.ReadStatus(ctx, in)
	if err != nil {
		return err
	}
	if output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(s)
	} else {
		err = printStatus(out, s)
	}
	if err != nil {
		return fmt.Errorf("print status: %w", err)
	}
	if !s.Ready {
		return errors.New("the cluster is not whole; fix it with: sudo virt-local up" + w.flags())
	}
	return nil
}

// printStatus prints tables by a writer of its own: cli.Table is virtctl's, and nothing but cmd/virtctl imports
// pkg/client (tests/arch).
func printStatus(out io.Writer, s cluster.Status) error {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintf(tw, "Instance\t%s\nServer\t%s\nState\t%s\n", s.Name, s.Server, s.StateDir)
	if s.StorageLimits != "" {
		fmt.Fprintf(tw, "Storage\t%s\n", s.StorageLimits)
	}
	fmt.Fprintln(tw)
	fmt.Fprintln(tw, "NODE\tREADY\tIP\tPODS\tMESSAGE")
	for _, n := range s.Nodes {
		fmt.Fprintf(tw, "%s\t%v\t%s\t%s\t%s\n", n.Name, n.Ready, both(n.IP, n.IPs), both(n.PodNet, n.PodNets),
			n.Message)
	}
	fmt.Fprintln(tw, "\nCOMPONENT\tNODE\tPID\tAGE\tMEMORY")
	for _, p := range s.Components {
		if !p.Running {
			fmt.Fprintf(tw, "%s\t%s\t-\t-\tnot running; see %s\n", p.Name, p.Node, p.Log)
			continue
		}
		age := duration.HumanDuration(time.Duration(p.AgeSeconds * float64(time.Second)))
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%d MiB\n", p.Name, p.Node, p.PID, age, p.MemoryBytes>>20)
	}
	if len(s.Kept) > 0 {
		fmt.Fprintln(tw, "\nKEPT DATA\tSIZE\tREMOVE IT WITH")
		for _, d := range s.Kept {
			fmt.Fprintf(tw, "%s\t%d MiB\t%s\n", d.Path, (d.Bytes+1<<20-1)>>20, d.Remove)
		}
	}
	return tw.Flush()
}

// both returns what a node has of each family, or all it has.
func both(one string, two []string) string {
	if len(two) == 0 {
		return one
	}
	return strings.Join(two, ",")
}

func newLogsCommand(w *which) *cobra.Command {
	var o logsOptions
	c := &cobra.Command{
		Use:   "logs [COMPONENT]",
		Short: "Show what the cluster's processes say",
		Long: `Show the logs of the control plane, or of a node's init, containerd, kubelet or kube-proxy. Without a component all
are shown, each line with its source before it.`,
		Example: `  sudo virt-local logs control-plane -f
  sudo virt-local logs kubelet --node node2 --tail 50`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: append([]string{"control-plane", csi.Controller, "init"}, cluster.NodePrograms...),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.component = args[0]
			}
			in, err := w.loadAsRoot()
			if err != nil {
				return err
			}
			logs, err := cluster.LogFiles(in, o.component, o.node)
			if err != nil {
				return err
			}
			return showLogs(cmd.Context(), os.Stdout, logs, o)
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on showing what is added")
	f.StringVar(&o.node, "node", "", "only this node's")
	f.IntVar(&o.tail, "tail", -1, "only so many last lines of each log; -1 for all")
	return c
}
