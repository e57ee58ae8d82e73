package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/virtkit/virtkit/pkg/handler/capabilities"
	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
	"github.com/virtkit/virtkit/pkg/stream/quota"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

const (
	// dialTimeout and keepAlive let a connection to an API server that is not there any more end.
	dialTimeout, keepAlive = 10 * time.Second, 10 * time.Second
	// minFenceAfter is the least --fence-after that can be meant.
	minFenceAfter = 10 * time.Second
	// collectAt trades processor time for memory, which every node has to spend.
	collectAt = 50
)

// options are virt-handler's flags.
type options struct {
	node, kubeconfig, namespace string
	pods, proc, state, devices  string
	device, modules             string
	address                     string
	port, healthPort            int
	migrationPort, metricsPort  int
	verbosity                   uint
	apiQPS                      float32
	apiBurst                    int
	fenceAfter                  time.Duration
	limits                      quota.Limits
}

// NewCommand returns the command `virt-server handler`.
func NewCommand() *cobra.Command {
	o := options{apiQPS: 50, apiBurst: 100, device: "/dev/kvm", modules: "/sys/module", limits: streams.DefaultLimits}
	cmd := &cobra.Command{
		Use:   "handler",
		Short: "Run virt-handler, which looks after the virtual machines of one node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.node == "" {
				return errors.New("the node's name is not known: set --node-name or NODE_NAME")
			}
			if o.fenceAfter != 0 && o.fenceAfter < minFenceAfter {
				return fmt.Errorf("--fence-after: %s is less than %s, in which the API server may well be silent; 0 "+
					"is never", o.fenceAfter, minFenceAfter)
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "name of the node this runs on")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig to use instead of the pod's service account")
	f.StringVar(&o.namespace, "namespace", names.Namespace, "namespace of the components and their certificates")
	f.StringVar(&o.pods, "pods-dir", "/pods", "the kubelet's pod directory")
	f.StringVar(&o.proc, "proc-dir", "/proc", "procfs of the host's PID namespace")
	f.StringVar(&o.state, "state-dir", "/var/lib/virtkit", "where to keep what must survive a restart")
	f.StringVar(&o.devices, "kubelet-device-plugins-dir", "/var/lib/kubelet/device-plugins",
		"the kubelet's device plugin directory")
	f.IntVar(&o.port, "port", names.PortHandler, "port for virt-api (mutual TLS)")
	f.StringVar(&o.address, "address", os.Getenv("POD_IP"),
		"address at which the other nodes' virt-handlers reach this one (also $POD_IP)")
	f.IntVar(&o.migrationPort, "migration-port", names.PortMigration,
		"port for the other nodes' virt-handlers (mutual TLS)")
	f.IntVar(&o.metricsPort, "metrics-port", names.PortMetrics, "port for Prometheus (TLS)")
	f.IntVar(&o.healthPort, "health-port", names.PortHealth, "port for /healthz and /readyz")
	o.limits.AddFlags(f)
	f.DurationVar(&o.fenceAfter, "fence-after", 0, "end all guests of this node when the API server has not answered "+
		"for so long; 0 is never")
	f.UintVarP(&o.verbosity, "v", "v", config.DefaultLogVerbosity,
		"log level unless the KubeVirt resource says otherwise: 2 what matters, more for debugging")
	cmd.AddCommand(capabilities.NewCommand())
	return cmd
}

func (o options) run(ctx context.Context) error {
	debug.SetGCPercent(collectAt)
	level := &slog.LevelVar{}
	setLevel(level, o.verbosity)
	log := jsonlog.New(os.Stderr, names.VirtHandler, level)
	klog.SetSlogLogger(log)
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))

	find := rest.InClusterConfig
	if o.kubeconfig != "" {
		find = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.kubeconfig) }
	}
	restConfig, err := find()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	return o.runWith(ctx, restConfig, log, level)
}

// setLevel makes the log say what belongs to a verbosity, klog included.
func setLevel(level *slog.LevelVar, verbosity uint) {
	level.Set(slog.LevelInfo)
	if verbosity > config.DefaultLogVerbosity {
		level.Set(slog.LevelDebug)
	}
	config.SetKlog(verbosity)
}

// runWith runs virt-handler against an API server; level is the level of log.
func (o options) runWith(ctx context.Context, restConfig *rest.Config, log *slog.Logger, level *slog.LevelVar) error {
	restConfig = rest.CopyConfig(restConfig)
	limiter := config.NewLimiter(config.RateLimit{QPS: o.apiQPS, Burst: o.apiBurst})
	restConfig.RateLimiter = limiter
	restConfig.UserAgent = names.VirtHandler
	ask, err := newAsker(restConfig, o.node)
	if err != nil {
		return err
	}
	connections := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)
	restConfig.Dial = connections.DialContext
	clients, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	follower, err := config.NewFollower(restConfig, o.namespace, names.KubeVirt)
	if err != nil {
		return err
	}
	follower.OnVerbosity(o.verbosity, func(v config.LogVerbosity) uint { return v.OfHandler(o.node) },
		func(verbosity uint) { setLevel(level, verbosity) })
	beat := newSignal()
	follower.OnChange(beat.call)
	follower.OnRateLimit(limiter, func(l config.RateLimits) config.RateLimit { return l.Handler })
	store, incoming, live, err := openCaches(restConfig, o.node)
	if err != nil {
		return err
	}
	n := NewNode(o.node, o.pods, o.proc, o.state, log)
	n.Plugins = func() network.Plugins { return follower.Current().Allowed.Bindings }
	n.MaySpoof = spoofing(clients)
	n.renewals.beat = beat.call
	n.Address, n.MigrationPort = o.address, o.migrationPort
	n.Rights.Plugins = o.devices
	if err := errors.Join(n.forgetOldPods(), n.forgetHarvested()); err != nil {
		log.Warn("old state not removed", "err", err)
	}
	h := &handler{
		options: o, log: log, node: n, clients: clients, store: store, incoming: incoming, live: live,
		follower:    follower,
		connections: connections, ask: ask, beat: beat, removed: newSignal(), cluster: restConfig,
	}
	return h.run(ctx)
}
