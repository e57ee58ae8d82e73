package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/hostdevices"
	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/usage"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/host"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/service/config"
)

// run looks after the node until stop ends, and a little longer: launchers are notified that virt-handler stops.
func (h *handler) run(stop context.Context) error {
	working, end := context.WithCancel(context.WithoutCancel(stop))
	defer end()
	group, ctx := errgroup.WithContext(working)
	source := h.certificate(certs.HandlerLeaf)
	group.Go(func() error { return source.Run(ctx) })
	group.Go(func() error { return h.follower.Run(ctx) })
	group.Go(func() error { return h.store.Start(ctx) })
	group.Go(func() error { return h.incoming.Start(ctx) })
	group.Go(func() error { return h.giveExports(ctx) })
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
	check := h.peerCheck()
	group.Go(func() error { return check.run(ctx) })
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
		beat := h.heartbeat(ctx, machine, noKVM, check, others)
		return beat.Run(beating)
	})
	if noKVM != nil {
		h.log.Info("no hardware virtualization: guests on this node are emulated", "reason", noKVM)
	} else {
		group.Go(func() error {
			return offerKVM(ctx, h.follower, func(ctx context.Context, guests int) error {
				return h.offerShared(ctx, names.ResourceKVM, h.device, "virtkit-kvm.sock", guests)
			})
		})
	}
	group.Go(func() error { return h.probe(ctx) })
	group.Go(func() error { return h.offerDevices(ctx) })
	group.Go(func() error { return h.offerGated(ctx, gatedVSOCK) })
	group.Go(func() error { return h.offerGated(ctx, gatedSEV) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// heartbeat keeps up the node's heartbeat. ctx ends when virt-handler has failed.
func (h *handler) heartbeat(
	ctx context.Context, machine string, noKVM error, check *peerCheck, others *peers,
) *nodestatus.Heartbeat {
	return &nodestatus.Heartbeat{
		Nodes: h.clients.CoreV1().Nodes(), Name: h.options.node, Log: h.log, Now: time.Now, Host: machine,
		Wake: h.beat, Labels: h.labels(noKVM),
		Saw: h.confirmed.saw, Took: h.node.renewals.took, Address: h.address,
		Settle: check.settle, Settled: check.settled, Paused: check.paused,
		Every: func() time.Duration { return min(h.node.renewals.period(), others.period()) },
		Pause: func() string {
			if ctx.Err() != nil {
				return "" // it has failed, and reaches no launcher
			}
			return check.pause()
		},
	}
}

// kubeletDir is the kubelet's directory of the node, seen from virt-handler, which is among the node's processes.
const kubeletDir = "/proc/1/root/var/lib/kubelet"

// nodeDev is the node's /dev; virt-handler's own is as the node's was when its container was made.
const nodeDev = "/proc/1/root/dev"

// launcherImage is the mount point of virt-launcher's image in virt-handler, cpuMap its directory of libvirt's CPU
// models.
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
	// confirmed is an administrator's confirmation about a restored cluster.
	confirmed confirmation
	// cluster configures access to the API server, which knows who may read metrics.
	cluster *rest.Config
	// beat asks for a heartbeat, removed says that a launcher's pod was.
	beat, removed signal
}

// peerCheck makes the peer check of this node.
func (h *handler) peerCheck() *peerCheck {
	return &peerCheck{
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

// labels returns the labels of the node by which guests are scheduled.
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
	installation := func() (bool, map[string]bool) {
		now := h.follower.Current()
		return now.UseEmulation, now.ObsoleteCPUModels
	}
	return nodestatus.All(append(all, nodestatus.CPULabels(hardware, emulated, h.hostModel, installation))...)
}
