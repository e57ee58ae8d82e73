// Package virtapi is virt-api: the aggregated API server behind subresources.kubevirt.io, and the
// admission webhooks.
//
//	user ─► kube-apiserver ─┬─ APIService ─► virt-api ─┬─ start, stop, restart ─► a change of the VM
//	                        └─ webhooks ───► virt-api  └─ console, vnc, pause ──► virt-handler of the node
//
// It owns no state: a request becomes a change of a resource, which the controllers follow, or a stream to a node. Any
// number of replicas work side by side. The cluster decides who calls and what they may do (TokenReview,
// SubjectAccessReview).
package virtapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
	"github.com/virtkit/virtkit/pkg/service/metrics"
	metricsendpoint "github.com/virtkit/virtkit/pkg/service/metrics/endpoint"
	"github.com/virtkit/virtkit/pkg/stream/quota"
)

const (
	// drainTime is the time that open streams may go on after the server got SIGTERM. With the shutdown of the server
	// itself it fits into a pod's 30 s.
	drainTime = 15 * time.Second
	// collectAt trades processor time for memory.
	collectAt = 50
)

// Options are the flags of virt-api.
type Options struct {
	// Kubeconfig is a file; empty means the pod's service account.
	Kubeconfig string
	// Namespace has the components and their certificates.
	Namespace string
	// Port serves the API and the webhooks, HealthPort /healthz and /readyz without TLS.
	Port, HealthPort int

	// WebhookClients is the directory that says who may call the webhooks; see callers.
	WebhookClients string

	// GuestfsImage is the image with libguestfs that users are told of; empty is none.
	GuestfsImage string

	// Limits bound the streams that are open.
	Limits quota.Limits

	audit     *options.AuditOptions
	verbosity uint
}

// NewCommand returns the command `virt-server api`.
func NewCommand() *cobra.Command {
	o := Options{audit: options.NewAuditOptions(), Limits: DefaultLimits}
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Run virt-api: subresources and admission",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			jsonlog.Install(os.Stderr, names.VirtAPI)
			config.SetKlog(o.verbosity)
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig to use instead of the pod's service account")
	f.StringVar(&o.Namespace, "namespace", names.Namespace, "namespace of the components and their certificates")
	f.IntVar(&o.Port, "port", names.PortAPI, "port for the API and the webhooks (TLS)")
	f.IntVar(&o.HealthPort, "health-port", names.PortHealth, "port for /healthz and /readyz")
	f.StringVar(&o.WebhookClients, "webhook-clients-dir", "",
		"directory whose file names has the certificate names that may call webhooks, and whose ca.crt their "+
			"authorities, "+
			"the cluster's for clients unless it is there; without the directory or its names anybody may")
	f.StringVar(&o.GuestfsImage, "guestfs-image", os.Getenv("GUESTFS_IMAGE"),
		"image with libguestfs that users make pods of ($GUESTFS_IMAGE); empty names none")
	o.Limits.AddFlags(f)
	o.audit.AddFlags(f)
	f.UintVarP(&o.verbosity, "v", "v", config.DefaultLogVerbosity,
		"log level unless the KubeVirt resource says otherwise: 2 what matters, more for debugging")
	return cmd
}

// Run serves until the context ends, then lets requests and streams finish.
func (o Options) Run(ctx context.Context) error {
	debug.SetGCPercent(collectAt)
	restConfig, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	restConfig.UserAgent = names.VirtAPI

	listener, err := net.Listen("tcp", ":"+strconv.Itoa(o.Port))
	if err != nil {
		return fmt.Errorf("listen for the API: %w", err)
	}
	defer listener.Close()
	health, err := net.Listen("tcp", ":"+strconv.Itoa(o.HealthPort))
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	return o.serve(ctx, restConfig, listener, health)
}

// serve does what Run does, on given listeners.
func (o Options) serve(ctx context.Context, restConfig *rest.Config, listener, health net.Listener) error {
	restConfig = rest.CopyConfig(restConfig)
	limiter := config.NewLimiter(config.RateLimit{QPS: 200, Burst: 400})
	restConfig.RateLimiter = limiter
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	follower, err := config.NewFollower(restConfig, o.Namespace, names.KubeVirt)
	if err != nil {
		return err
	}
	follower.OnVerbosity(o.verbosity, func(v config.LogVerbosity) uint { return v.API }, config.SetKlog)
	follower.OnRateLimit(limiter, func(l config.RateLimits) config.RateLimit { return l.API })
	source := certs.NewSource(client, o.Namespace, names.APICertSecret)
	machines, err := newMachines(restConfig, client)
	if err != nil {
		return err
	}
	nodes, err := newNodes(client, o.Namespace)
	if err != nil {
		return err
	}
	q := newRequests(machines, nodes, source.HandlerConfig, func() (string, error) {
		info, err := client.Discovery().ServerVersion()
		if err != nil {
			return "", err
		}
		return info.GitVersion, nil
	})
	q.streams.quota.Limits, q.guestfsImage = o.Limits, o.GuestfsImage
	holders, err := newAddressHolders(machines.kubevirt, machines)
	if err != nil {
		return err
	}
	hooks := &admission{
		holders: holders, defaults: defaultsOf(follower.Current), referents: referents{machines.kubevirt},
		instance: machines.vmi, definition: machines.definition,
		evictions: evictions{machines: machines, strategy: func() v1.EvictionStrategy {
			return follower.Current().
				EvictionStrategy
		}},
		authorize: func(ctx context.Context, review *authorizationv1.SubjectAccessReview) (
			*authorizationv1.SubjectAccessReview, error,
		) {
			return client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		},
	}

	// What the server needs outlives it: streams are drained after it has stopped.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	ctx, stopServing := context.WithCancel(ctx)
	defer stopServing()
	var ready atomic.Bool
	var work errgroup.Group
	work.Go(func() error { return source.Run(background) })
	work.Go(func() error { return follower.Run(background) })
	work.Go(func() error { nodes.informer.RunWithContext(background); return nil })
	work.Go(func() error { holders.run(background); return nil })
	work.Go(func() error {
		defer stopServing() // without health checks the kubelet would kill us anyway
		return serveHealth(background, health, &ready)
	})
	work.Go(func() error {
		defer stopBackground()
		for _, needed := range []struct {
			what  string
			ready <-chan struct{}
		}{
			{"the certificate, which virt-controller makes", source.Ready()},
			{"the KubeVirt resource", follower.Ready()},
			{"the list of virt-handlers", synced(background, nodes)},
		} {
			klog.V(1).InfoS("waiting", "for", needed.what)
			select {
			case <-needed.ready:
			case <-ctx.Done():
				return nil
			}
		}
		return o.answer(ctx, listener, source, &ready, q, hooks)
	})
	return work.Wait()
}

// answer serves the API and the webhooks until ctx ends, and lets the streams finish.
func (o Options) answer(
	ctx context.Context, listener net.Listener, source *certs.Source, ready *atomic.Bool, q *requests, hooks *admission,
) error {
	measured := metricsendpoint.New()
	measured.Add(q.streams.connections.write)
	measured.Flag(metrics.APIReady, ready.Load)
	authentication := options.NewDelegatingAuthenticationOptions()
	authentication.RemoteKubeConfigFile = o.Kubeconfig
	authorization := options.NewDelegatingAuthorizationOptions()
	authorization.RemoteKubeConfigFile = o.Kubeconfig
	allowedCallers := newCallers(o.WebhookClients)
	server, err := newServer(serving{
		listener, newCertificate(source), authentication, authorization, o.audit,
		allowedCallers, measured,
	}, q, hooks)
	if err != nil {
		return err
	}
	if err := server.AddPostStartHook("virt-api-ready", func(genericapiserver.PostStartHookContext) error {
		ready.Store(true)
		return nil
	}); err != nil {
		return err
	}
	klog.InfoS("serving", "address", listener.Addr().String())
	stopped := context.AfterFunc(ctx, func() { ready.Store(false); q.streams.stop() })
	defer stopped()
	err = server.PrepareRun().RunWithContext(ctx)
	q.streams.drain(drainTime)
	q.handlers.closeIdle()
	return err
}

func synced(ctx context.Context, n *nodes) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-n.informer.HasSyncedChecker().Done():
		case <-ctx.Done():
		}
	}()
	return done
}

// serveHealth answers the kubelet: alive while the process works, ready while requests are served.
func serveHealth(ctx context.Context, listener net.Listener, ready *atomic.Bool) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "not serving requests", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}
