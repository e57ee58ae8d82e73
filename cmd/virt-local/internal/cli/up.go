package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/csi"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/images"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/node"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/payload"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/preflight"
	"github.com/virtkit/virtkit/pkg/waits"
)

type upOptions struct {
	*which
	nodes int
	// nodesGiven distinguishes a wish for that many from the default.
	nodesGiven bool
	kubeconfig string
	hints      bool
	images     []string
	multus     bool
	storage    string
	family     string
	// ipv6 returns why the machine can have no IPv6, if so.
	ipv6    func() error
	grace   time.Duration
	timeout time.Duration
}

// upTimeout is when up gives up, and nodeGrace how long Kubernetes waits for a silent node, on a usual machine.
const upTimeout, nodeGrace = 3 * time.Minute, 50 * time.Second

func newUpCommand(w *which) *cobra.Command {
	o := upOptions{which: w, ipv6: sync.OnceValue(hostnet.IPv6)}
	c := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or what is missing of it",
		Long: `Start the cluster, and merge a context named like the instance into the kubeconfig. If it runs already, change
nothing; if a part of it has died, or the machine was rebooted, start what is missing.`,
		Example: `  sudo virt-local up
  sudo virt-local up --nodes 3 --image app.tar --image db.tar
  sudo virt-local up --name second          # another cluster beside the first`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.nodesGiven = cmd.Flags().Changed("nodes")
			return runUp(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.IntVar(&o.nodes, "nodes", 2, "number of nodes; of a cluster that exists it can only grow")
	f.BoolVar(&o.hints, "hints", true, "say what to do next")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig to merge the context into (default $KUBECONFIG, else "+
		"~/.kube/config)")
	f.StringArrayVar(&o.images, "image", nil, "image archive to load into all nodes, see load-image; may be repeated")
	f.BoolVar(&o.multus, "multus", false, "several networks for pods: Multus as CNI plugin, and two Ethernets "+
		"between the nodes (bridges lan1, lan2); for a new cluster")
	f.StringVar(&o.storage, "storage", "", "where volumes come from: csi, or hostpath for directories without sizes, "+
		"snapshots and clones, on a machine that the CSI driver cannot run on; for a new cluster, or csi for one that "+
		"is down (default csi)")
	f.StringVar(&o.family, "ip-family", "", "addresses of nodes, pods and Services: ipv4, ipv6, dual for both, or "+
		"auto for dual where the machine can and else ipv4; for a new cluster (default auto)")
	f.DurationVar(&o.timeout, "timeout", waits.Scaled(upTimeout), "give up after this time; "+waits.Variable+
		"=10 in the environment makes it, and all such times, ten times as long")
	f.DurationVar(&o.grace, "node-monitor-grace-period", 0,
		"how long a silent node stays Ready (default Kubernetes', 50 s; of a new cluster times "+waits.Variable+")")
	return c
}

func runUp(ctx context.Context, o upOptions) error {
	if err := requireRoot(); err != nil {
		return err
	}
	if o.nodes < 1 || o.nodes > instance.MaxNodes {
		return fmt.Errorf("invalid --nodes %d: from 1 to %d are possible", o.nodes, instance.MaxNodes)
	}
	dir, err := o.dir()
	if err != nil {
		return err
	}
	tools, err := preflight.Check(preflight.This())
	if err = errors.Join(err, checkStorage(o, dir), payload.Complete()); err != nil {
		return err
	}
	archives, err := openArchives(o.images)
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	in, fresh, err := decide(o, dir, time.Now())
	if err != nil {
		return err
	}
	if fresh && cmp.Or(o.family, auto) == auto && in.IPFamily == instance.IPv4 {
		fmt.Fprintf(os.Stderr, "The cluster has IPv4 only, for this machine cannot have IPv6: %v.\n", o.ipv6())
	}
	if err := claim(in, fresh); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	begin := time.Now()
	progress := newProgress(os.Stderr)
	err = cluster.Up(ctx, in, tools, archives, progress.report)
	progress.close()
	if err != nil {
		return fmt.Errorf("%w\nWhat is up stays up: try again with virt-local up%s, look with virt-local logs%s, or "+
			"remove all with virt-local down%s", err, o.flags(), o.flags(), o.flags())
	}
	admin, err := cluster.Admin(in)
	if err != nil {
		return err
	}
	err = kubeconfig.Update(in.Kubeconfig, func(cfg *api.Config) { kubeconfig.Merge(cfg, in.Name, admin) })
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "\nCluster %q is up: %d nodes, %.1f s.\n", in.Name, in.Nodes, time.Since(begin).Seconds())
	printLimits(os.Stderr, in)
	if o.hints {
		printNext(in, o.which)
	}
	return nil
}

// printLimits says what volumes cannot do on this machine, if there is such.
func printLimits(out io.Writer, in *instance.Instance) {
	if limits := csi.Limits(in); limits != "" {
		fmt.Fprintf(out, "Its %s.\n", limits)
	}
}

// checkStorage finds out, before anything is changed, whether the machine can have the volumes that the instance would.
func checkStorage(o upOptions, dir string) error {
	in, _, err := decide(o, dir, time.Now())
	if err != nil || in.Storage != instance.CSI {
		return err
	}
	return preflight.CheckStorage(preflight.This())
}

// decide returns the instance as it shall be, fresh if it is to be made.
func decide(o upOptions, dir string, now time.Time) (in *instance.Instance, fresh bool, err error) {
	in, err = instance.Load(dir)
	switch {
	case errors.Is(err, instance.ErrNotFound):
		in = &instance.Instance{Name: o.name, StateDir: dir, Nodes: o.nodes, Multus: o.multus, Created: now.UTC()}
		fresh = true
	case err != nil:
		return nil, false, err
	case in.Name != o.name:
		return nil, false,
			fmt.Errorf("%s belongs to the instance %q: give --name %s, or another --state-dir", dir, in.Name, in.Name)
	case o.multus && !in.Multus:
		return nil, false, fmt.Errorf("instance %q was made without --multus, which its nodes would have to be made "+
			"anew for: virt-local down%s first", in.Name, o.flags())
	case o.nodesGiven && o.nodes < in.Nodes:
		return nil, false, fmt.Errorf("instance %q has %d nodes, and a cluster cannot shrink: virt-local down%s first",
			in.Name, in.Nodes, o.flags())
	case o.nodesGiven:
		in.Nodes = o.nodes
	}
	if err := errors.Join(chooseStorage(o, in, fresh), chooseFamily(o, in, fresh)); err != nil {
		return nil, false, err
	}
	switch {
	case o.grace > 0:
		in.NodeMonitorGrace = o.grace
	case fresh && waits.Scaled(nodeGrace) > nodeGrace:
		// A kubelet of a slow machine is late with its reports, and its guests would be taken for lost.
		in.NodeMonitorGrace = waits.Scaled(nodeGrace)
	}
	if o.kubeconfig != "" {
		path, err := filepath.Abs(o.kubeconfig)
		if err != nil {
			return nil, false, fmt.Errorf("find --kubeconfig: %w", err)
		}
		in.ChooseKubeconfig(path)
	} else if in.Kubeconfig == "" {
		if in.Kubeconfig, err = filepath.Abs(kubeconfig.UserPath()); err != nil {
			return nil, false, fmt.Errorf("find the kubeconfig: %w", err)
		}
	}
	return in, fresh, nil
}

// chooseStorage sets where the instance's volumes come from. One that was made before there was a choice, and is down,
// is taken over: volumes that it has stay as they are. A cluster that runs keeps what it has, for its nodes would not
// know the driver; and what the driver has made is the driver's, for good.
func chooseStorage(o upOptions, in *instance.Instance, fresh bool) error {
	if o.storage != "" && o.storage != instance.CSI && o.storage != instance.HostPath {
		return fmt.Errorf("invalid --storage %q: csi and hostpath are possible", o.storage)
	}
	has := in.Storage
	if has == "" && !fresh {
		has = instance.HostPath
	}
	wanted := o.storage
	if wanted == "" {
		if wanted = in.Storage; wanted == "" {
			wanted = instance.CSI
		}
	}
	switch {
	case fresh || wanted == has:
		in.Storage = wanted
		return nil
	case wanted == instance.HostPath:
		return fmt.Errorf("instance %q has --storage csi, and there is no way back: virt-local down%s first, which "+
			"removes its volumes", in.Name, o.flags())
	}
	runs, err := cluster.Runs(in)
	switch {
	case err != nil:
		return err
	case runs && o.storage == "":
		return nil // until it is down
	case runs:
		return fmt.Errorf("instance %q runs with --storage hostpath: virt-local down --keep-data%s first; its "+
			"volumes stay", in.Name, o.flags())
	}
	in.Storage = wanted
	return nil
}

// auto is the default of --ip-family, with which the machine decides: both families, or IPv4 where it cannot have IPv6.
const auto = "auto"

// chooseFamily sets which addresses the instance has, once for all: nodes, pods and Services could not keep theirs.
func chooseFamily(o upOptions, in *instance.Instance, fresh bool) error {
	known := []string{instance.IPv4, instance.IPv6, instance.Dual, auto}
	if o.family != "" && !slices.Contains(known, o.family) {
		return fmt.Errorf("invalid --ip-family %q: %s are possible", o.family, strings.Join(known, ", "))
	}
	if !fresh {
		if has := cmp.Or(in.IPFamily, instance.IPv4); o.family != "" && o.family != has && o.family != auto {
			return fmt.Errorf("instance %q has --ip-family %s, and a cluster's addresses cannot change: virt-local "+
				"down%s first", in.Name, has, o.flags())
		}
		return nil
	}
	in.IPFamily = cmp.Or(o.family, auto)
	if in.IPFamily == instance.IPv4 {
		return nil
	}
	err := o.ipv6()
	switch {
	case in.IPFamily == auto && err != nil:
		in.IPFamily = instance.IPv4
	case in.IPFamily == auto:
		in.IPFamily = instance.Dual
	case err != nil:
		return fmt.Errorf("this machine cannot have --ip-family %s: %w; without the flag the cluster has IPv4",
			o.family, err)
	}
	return nil
}

// claim gives the instance its slot, and the machine the settings that instances need.
func claim(in *instance.Instance, fresh bool) (err error) {
	routed, err := hostnet.Routed()
	if err != nil {
		return err
	}
	register, err := instance.OpenRegister(instance.RegisterDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, register.Close()) }()
	if err := register.Claim(in, fresh, routed); err != nil {
		return err
	}
	steps, err := hostnet.Settings(in)
	if err != nil {
		return err
	}
	for _, settings := range steps {
		if err := register.RaiseSysctls(settings); err != nil {
			return err
		}
	}
	return nil
}

func openArchives(paths []string) ([]images.Archive, error) {
	var archives []images.Archive
	for _, path := range paths {
		a, err := images.File(path)
		if err != nil {
			return nil, err
		}
		archives = append(archives, a)
	}
	return archives, nil
}

func printNext(in *instance.Instance, w *which) {
	fmt.Fprintln(os.Stderr)
	if export := kubeconfig.Context(in.Kubeconfig); export != "" {
		fmt.Fprintf(os.Stderr, "  %s\n", export)
	}
	fmt.Fprintf(os.Stderr, "  kubectl --context %s get nodes\n", in.Name)
	fmt.Fprintf(os.Stderr, "  virtctl --context %s install          # virtual machines\n", in.Name)
	fmt.Fprintf(os.Stderr, "  sudo virt-local load-image%s FILE.tar   # instead of a registry\n", w.flags())
	fmt.Fprintf(os.Stderr, "  sudo virt-local down%s\n", w.flags())
}

func newNodeInitCommand(w *which) *cobra.Command {
	var number int
	c := &cobra.Command{
		Use: "node-init", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := w.load()
			if err != nil {
				return err
			}
			return node.Run(cmd.Context(), instance.Node{Instance: in, Number: number}, os.NewFile(3, "connected"))
		},
	}
	c.Flags().IntVar(&number, "number", 0, "")
	return c
}

func newClusterControlPlaneCommand(w *which) *cobra.Command {
	return &cobra.Command{
		Use: "cluster-control-plane", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := w.load()
			if err != nil {
				return err
			}
			return cluster.ServeControlPlane(cmd.Context(), in)
		},
	}
}
