package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/preflight"
	"github.com/virtkit/virtkit/pkg/waits"
)

// nodeTimeout bounds what is done to one node.
const nodeTimeout = 2 * time.Minute

func newNodeCommand(w *which) *cobra.Command {
	c := &cobra.Command{
		Use:   "node",
		Short: "Kill, start, cut off and reconnect nodes, to see what becomes of what runs there",
		Long: `Kill a node, or cut it off from the network, and bring it back: to see what Kubernetes and what runs on it make of
that. Kubernetes has a silent node as NotReady after 50 s, or what up's --node-monitor-grace-period said.`,
		Example: `  sudo virt-local node cut node2         # its pods run on, and nobody knows
  sudo virt-local node heal node2
  sudo virt-local node stop node2        # a power cut
  sudo virt-local node start node2`,
	}
	c.AddCommand(
		newNodeVerb(w, "stop", "End nodes as a power cut would",
			"End nodes as a power cut would: every process at once, guests included. Images and volumes stay.",
			"is off", func(ctx context.Context, n instance.Node) error { return cluster.StopNode(ctx, n) }),
		newNodeVerb(w, "start", "Start nodes that were stopped",
			"Start nodes that were stopped, and wait until Kubernetes has them as Ready.", "is up", startNode),
		newNodeVerb(w, "cut", "Cut nodes off from the network", "Cut nodes off from the network: from the API "+
			"server, each other and the machine. What runs on them runs on.",
			"is cut off", func(_ context.Context, n instance.Node) error { return cluster.CutNode(n) }),
		newNodeVerb(w, "heal", "Reconnect nodes that were cut off", "Reconnect nodes that were cut off.",
			"is connected", func(_ context.Context, n instance.Node) error { return cluster.HealNode(n) }),
	)
	return c
}

func newNodeVerb(
	w *which, verb, short, long, done string, do func(context.Context, instance.Node) error,
) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NODE…", Short: short, Long: long, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return w.nodeNames(args), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeVerb(cmd.Context(), w, args, done, do)
		},
	}
}

func runNodeVerb(
	ctx context.Context, w *which, names []string, done string, do func(context.Context, instance.Node) error,
) error {
	in, err := w.loadAsRoot()
	if err != nil {
		return err
	}
	nodes, err := findNodes(in, names)
	if err != nil {
		return err
	}
	unlock, err := lock(in.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	for _, n := range nodes {
		if err := onNode(ctx, n, do); err != nil {
			if errors.Is(err, hostnet.ErrNotConnected) {
				return fmt.Errorf("%w; start it with: sudo virt-local node start %s%s", err, n.NodeName(), w.flags())
			}
			return fmt.Errorf("%s: %w", n.NodeName(), err)
		}
		fmt.Fprintf(os.Stderr, "%s %s.\n", n.NodeName(), done)
	}
	return nil
}

func onNode(ctx context.Context, n instance.Node, do func(context.Context, instance.Node) error) error {
	ctx, cancel := context.WithTimeout(ctx, waits.Scaled(nodeTimeout))
	defer cancel()
	return do(ctx, n)
}

func startNode(ctx context.Context, n instance.Node) error {
	tools, err := preflight.Check(preflight.This())
	if err != nil {
		return err
	}
	progress := newProgress(os.Stderr)
	defer progress.close()
	return cluster.StartNode(ctx, n, tools, progress.report)
}

// findNodes finds the nodes that arguments name, all or none.
func findNodes(in *instance.Instance, names []string) ([]instance.Node, error) {
	byName, known := map[string]instance.Node{}, []string{}
	for _, n := range in.NodeList() {
		byName[n.NodeName()] = n
		known = append(known, n.NodeName())
	}
	var found []instance.Node
	for _, name := range names {
		n, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("unknown node %q: there are %s", name, strings.Join(known, ", "))
		}
		found = append(found, n)
	}
	return found, nil
}

// nodeNames returns the names of the instance's nodes that are not among the given ones, for completion.
func (w *which) nodeNames(given []string) []string {
	in, err := w.load()
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range in.NodeList() {
		if !slices.Contains(given, n.NodeName()) {
			out = append(out, n.NodeName())
		}
	}
	return out
}
