package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/virtkit/virtkit/pkg/certs"
	"github.com/virtkit/virtkit/pkg/config"
	"github.com/virtkit/virtkit/pkg/handler/capabilities"
	"github.com/virtkit/virtkit/pkg/handler/deviceplugin"
	"github.com/virtkit/virtkit/pkg/handler/hostdevices"
	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/handler/usage"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/host"
	"github.com/virtkit/virtkit/pkg/stream/quota"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

const (
	// dialTimeout and keepAlive let a connection to an API server that is not there any more end.
	dialTimeout, keepAlive = 10 * time.Second, 10 * time.Second
	// minFenceAfter is the least --fence-after that can be meant.
	minFenceAfter = 10 * time.Second
	// collectAt trades processor time for memory, of which every node pays.
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

// NewCommand is `virt-server handler`.
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
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
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

// runWith runs virt-handler against an API server; level is that of log.
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

// newScheme knows the two kinds that virt-handler reads.
func newScheme() *kruntime.Scheme {
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{corev1.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a programming error: two types of one name
		}
	}
	return scheme
}

// openCaches makes a cache of the VMIs and launcher pods of the node, without what nobody reads, one of the
// VMIs that are to come to it, and a client that reads past them.
func openCaches(config *rest.Config, nodeName string) (store, incoming cache.Cache, live client.WithWatch, err error) {
	scheme := newScheme()
	labelled := func(label string) cache.ByObject {
		return cache.ByObject{
			Label:     labels.SelectorFromSet(labels.Set{label: nodeName}),
			Transform: cache.TransformStripManagedFields(),
		}
	}
	store, err = cache.New(config, cache.Options{
		Scheme: scheme,
		ByObject: map[client.Object]cache.ByObject{
			&v1.VirtualMachineInstance{}: labelled(v1.NodeNameLabel),
			&corev1.Pod{}: {
				Label:     labels.SelectorFromSet(labels.Set{names.LabelComponent: names.VirtLauncher}),
				Field:     fields.OneTermEqualSelector("spec.nodeName", nodeName),
				Transform: stripPod,
			},
		},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make cache: %w", err)
	}
	incoming, err = cache.New(config, cache.Options{
		Scheme: scheme,
		ByObject: map[client.Object]cache.ByObject{
			&v1.VirtualMachineInstance{}: labelled(v1.MigrationTargetNodeNameLabel),
		},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make cache: %w", err)
	}
	live, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make client: %w", err)
	}
	return store, incoming, live, nil
}

// stripPod keeps of a launcher pod what a status is made of.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Annotations = network.Kept(pod.Annotations)
	spec := corev1.PodSpec{NodeName: pod.Spec.NodeName}
	for _, c := range pod.Spec.Containers {
		if c.Name == names.ContainerCompute {
			spec.Containers = []corev1.Container{
				{Name: c.Name, Image: c.Image, Resources: corev1.ResourceRequirements{Limits: c.Resources.Limits}},
			}
		}
	}
	pod.Spec = spec
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type != corev1.ContainersReady })
	pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses = nil, nil
	return pod, nil
}

// kubeletDir is the kubelet's directory of the node, seen from virt-handler, which is among the node's processes.
const kubeletDir = "/proc/1/root/var/lib/kubelet"

// nodeDev is the node's /dev; virt-handler's own is as the node's was when its container was made.
const nodeDev = "/proc/1/root/dev"

// launcherImage is where virt-launcher's image is mounted in virt-handler, cpuMap what it has of libvirt's CPU models.
const (
	launcherImage = "/launcher"
	cpuMap        = launcherImage + "/usr/share/libvirt/cpu_map"
)

// handler is a running virt-handler.
type handler struct {
	options
	log      *slog.Logger
	node     *Node
	clients  kubernetes.Interface
	store    cache.Cache
	incoming cache.Cache
	live     client.WithWatch
	// follower knows the KubeVirt resource.
	follower *config.Follower
	// connections are those to the API server, but for the fencing watchdog's, which are in ask.
	connections *connrotation.Dialer
	ask         *asker
	// confirmed is what an administrator says of a restored cluster.
	confirmed confirmation
	// cluster is how to reach the API server, which knows who may read metrics.
	cluster *rest.Config
	// beat asks for a heartbeat, removed says that a launcher's pod was.
	beat, removed signal
}

// run looks after the node until stop ends, and a little longer: launchers are told that virt-handler stops.
func (h *handler) run(stop context.Context) error {
	working, end := context.WithCancel(context.WithoutCancel(stop))
	defer end()
	group, ctx := errgroup.WithContext(working)
	source := h.certificate(certs.HandlerLeaf)
	group.Go(func() error { return source.Run(ctx) })
	group.Go(func() error { return h.follower.Run(ctx) })
	group.Go(func() error { return h.store.Start(ctx) })
	group.Go(func() error { return h.incoming.Start(ctx) })
	h.node.Dial = func(ctx context.Context, node, address string) (net.Conn, error) {
		dialer := &tls.Dialer{Config: source.HandlerConfig(node)}
		return dialer.DialContext(ctx, "tcp", address)
	}

	noKVM := nodestatus.KVM(h.device, h.modules, runtime.GOARCH)
	h.node.Prober = h.newProber(noKVM == nil)
	loop, err := newLoop(ctx, h)
	if err != nil {
		return err
	}
	group.Go(func() error { return h.watchdog(loop.reconciler.Events).run(ctx) })
	machine, err := host.Read(filepath.Dir(h.modules), "/proc", noKVM).Annotation()
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	group.Go(func() error { return loop.run(ctx, ready) })
	group.Go(func() error { return h.serveHealth(ctx, &loop.passes, ready, source.Ready()) })
	reader := &usage.Reader{Guests: loop.reconciler.Guests, Log: h.log, Now: time.Now}
	defer reader.Close()
	group.Go(func() error {
		return h.serveStreams(ctx, loop.reconciler, reader, toGuest(ctx, group, h.certificate(certs.GuestsLeaf)),
			source.ServerConfig(names.CommonNameAPI))
	})
	group.Go(func() error { return h.serveMetrics(ctx, reader, source.ServerConfig(), ready) })
	others := newPeers(h.node.renewals.silence, h.beat.call)
	group.Go(func() error {
		return h.serveNodes(ctx, loop.reconciler, others, source.ServerConfigForNodes())
	})
	w := h.witness()
	group.Go(func() error { return w.run(ctx) })
	group.Go(func() error {
		defer end() // the rest ends after the last heartbeat
		beating, quit := context.WithCancel(ctx)
		defer quit()
		defer context.AfterFunc(stop, quit)()
		select { // a node is schedulable once its guests are looked after
		case <-beating.Done():
			return nil
		case <-ready:
		}
		beat := nodestatus.Heartbeat{
			Nodes: h.clients.CoreV1().Nodes(), Name: h.options.node, Log: h.log, Now: time.Now, Host: machine,
			Wake: h.beat, Labels: h.labels(noKVM),
			Saw: h.confirmed.saw, Took: h.node.renewals.took, Address: h.address, Settle: w.settle, Settled: w.settled,
			Paused: w.paused,
			Every:  func() time.Duration { return min(h.node.renewals.period(), others.period()) },
			Pause: func() string {
				if ctx.Err() != nil {
					return "" // it has failed, and cannot tell launchers
				}
				return w.pause()
			},
		}
		return beat.Run(beating)
	})
	if noKVM != nil {
		h.log.Info("no hardware virtualization: guests on this node are emulated", "reason", noKVM)
	} else {
		group.Go(func() error {
			return offerKVM(ctx, h.follower, func(ctx context.Context, guests int) error {
				plugin := &deviceplugin.Plugin{
					Resource: names.ResourceKVM, Offer: deviceplugin.Shared{Device: h.device, Count: guests},
					Dir: h.devices, Socket: "virtkit-kvm.sock", Log: h.log,
				}
				return plugin.Run(ctx)
			})
		})
	}
	group.Go(func() error { return h.probe(ctx) })
	group.Go(func() error { return h.offerDevices(ctx) })
	group.Go(func() error { return h.offerVSOCK(ctx) })
	group.Go(func() error { return h.offerSEV(ctx) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// witness is that of this node.
func (h *handler) witness() *witness {
	return &witness{
		node: h.options.node, renewals: &h.node.renewals, now: time.Now, log: h.log, tick: time.After,
		list: func(ctx context.Context) ([]metav1.PartialObjectMetadata, error) { return listNodes(ctx, h.live) },
		ask: func(ctx context.Context, node, address string, every time.Duration) (time.Duration, error) {
			dial := func(ctx context.Context) (net.Conn, error) {
				return h.node.Dial(ctx, node, net.JoinHostPort(address, strconv.Itoa(h.migrationPort)))
			}
			return askPeer(ctx, dial, every)
		},
		running: func(pod types.UID) bool {
			runs, err := podfs.Running(h.proc, pod)
			return runs || err != nil // what cannot be looked at counts as running
		},
	}
}

// certificate follows a certificate of this node.
func (h *handler) certificate(leafOf func(node string) certs.Leaf) *certs.Source {
	leaf := leafOf(h.options.node)
	file := "virt-handler.pem"
	if leaf.ClientOnly {
		file = "guests.pem"
	}
	return certs.NewNodeSource(certs.NodeCertificate{
		Client: h.clients, Namespace: h.namespace, Leaf: leaf, File: filepath.Join(h.state, "certificates", file),
		Policy: func() certs.Policy { return h.follower.Current().Certificates }, Now: time.Now,
	})
}

// offerDevices offers the devices of the node that the KubeVirt resource lets guests have.
func (h *handler) offerDevices(ctx context.Context) error {
	changed := newSignal()
	h.follower.OnChange(changed.call)
	offers := &hostdevices.Offers{
		Permitted: func() *v1.PermittedHostDevices { return h.follower.Current().HostDevices }, Changed: changed,
		Sys: os.DirFS("/sys"), Dev: os.DirFS(nodeDev), Dir: h.devices, Log: h.log,
	}
	select {
	case <-ctx.Done():
		return nil
	case <-h.follower.Ready():
	}
	return offers.Run(ctx)
}

// labels are what of the node guests are scheduled by.
func (h *handler) labels(noKVM error) nodestatus.Labels {
	all := []nodestatus.Labels{
		nodestatus.CPUManager(kubeletDir), nodestatus.Realtime("/proc"),
		nodestatus.Confidential(h.modules),
	}
	if runtime.GOARCH != "amd64" {
		return nodestatus.All(all...)
	}
	var hardware func() (*nodestatus.Processor, error)
	if noKVM == nil {
		hardware = sync.OnceValues(func() (*nodestatus.Processor, error) {
			hardware, err := nodestatus.ReadHardware(h.device)
			if err != nil {
				return nil, err
			}
			return nodestatus.ReadProcessor(cpuMap, hardware)
		})
	}
	emulated := sync.OnceValues(func() (*nodestatus.Processor, error) { return nodestatus.ReadProcessor(cpuMap, nil) })
	return nodestatus.All(append(all, nodestatus.CPULabels(hardware, emulated, func() (bool, map[string]bool) {
		installation := h.follower.Current()
		return installation.UseEmulation, installation.ObsoleteCPUModels
	}))...)
}
