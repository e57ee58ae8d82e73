// Package controller is virt-controller: it turns VirtualMachines into VirtualMachineInstances and those into launcher
// pods, judges nodes, rotates certificates, and reports the installation's state. Each of these is a package below;
// this one has their flags, the cache they share, leader election and health.
//
//	VirtualMachine ──vm──► VirtualMachineInstance ──vmi──► Pod
//	VirtualMachineInstanceMigration ──migration──► a second Pod, status.migrationState
//	VirtualMachine dataVolumeTemplates ──vm, cdi──► DataVolume
//	a VMI that is to leave its node ──evacuation──► VirtualMachineInstanceMigration
//	a VMI that is not to be evicted ──disruption──► PodDisruptionBudget
//	Node, heartbeat ──node──► phase Unknown, kubevirt.io/schedulable
//	VirtualMachineSnapshot ──snapshot──► VirtualMachineSnapshotContent, VolumeSnapshots of a frozen guest
//	certificates ──► Secrets, ConfigMap, caBundle of webhooks and APIServices
//	VMs, VMIs, migrations, nodes ──inventory──► Prometheus
//	running guests of an older launcher ──workloadupdate──► migrations, evictions
//	Deployments, DaemonSet ──kubevirt──► status of the KubeVirt resource
package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/virtkit/virtkit/pkg/controller/snapshotcontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
)

// Options are the flags of virt-controller.
type Options struct {
	// Kubeconfig is a file; empty means $KUBECONFIG, or the pod's own service account.
	Kubeconfig string
	// LauncherImage is virt-launcher's image, ServerImage virt-server's; ImagePullPolicy is the policy of the pods that
	// have them unless the KubeVirt resource sets one.
	LauncherImage, ServerImage string
	ImagePullPolicy            string
	// NodeTimeout is the time without a heartbeat after which a node's virt-handler counts as lost.
	NodeTimeout time.Duration
	// FenceAfter is the time since the cluster last heard of a node after which the launchers there end the guests that
	// are then started again elsewhere; 0 means never.
	FenceAfter time.Duration
	// LeaderElect makes several replicas work as one. Identity is this one's name.
	LeaderElect bool
	Identity    string
	// HealthAddress serves /healthz and /readyz; "0" is off.
	HealthAddress string
	// MetricsPort serves Prometheus; 0 is any port.
	MetricsPort int

	verbosity uint

	// freezer keeps guests from writing while they are snapshotted; virt-api does when it is nil.
	freezer snapshotcontroller.Freezer
}

// NewCommand returns the command `virt-server controller`.
func NewCommand() *cobra.Command {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = fmt.Sprintf("pid-%d", os.Getpid())
	}
	options := Options{Identity: hostname}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run virt-controller: VirtualMachines to instances to pods",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			jsonlog.Install(os.Stderr, names.VirtController)
			config.SetKlog(options.verbosity)
			ctrl.SetLogger(klog.Background())
			return options.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "",
		"kubeconfig file; empty means $KUBECONFIG or the pod's service account")
	flags.StringVar(&options.LauncherImage, "launcher-image", os.Getenv("LAUNCHER_IMAGE"),
		"image of virt-launcher (also $LAUNCHER_IMAGE)")
	flags.StringVar(&options.ServerImage, "server-image", os.Getenv("SERVER_IMAGE"),
		"image of virt-server, which the pods of exports have (also $SERVER_IMAGE)")
	flags.StringVar(&options.ImagePullPolicy, "image-pull-policy", string(corev1.PullIfNotPresent),
		"pull policy of both images unless the KubeVirt resource says otherwise")
	flags.DurationVar(&options.NodeTimeout, "node-timeout", 5*time.Minute,
		"how long a node's virt-handler may be silent before its VMs count as unknown")
	flags.DurationVar(&options.FenceAfter, "fence-after", defaultFenceAfter, "have launchers end guests that the VM "+
		"starts again when their node has not been heard of for so long, and start them elsewhere; 0 is never")
	flags.BoolVar(&options.LeaderElect, "leader-elect", true,
		"work only while holding the lease; needed with more than one replica")
	flags.StringVar(&options.HealthAddress, "health-address", fmt.Sprintf(":%d", names.PortHealth),
		"where to serve /healthz and /readyz; 0 is nowhere")
	flags.IntVar(&options.MetricsPort, "metrics-port", names.PortMetrics, "port for Prometheus (TLS)")
	flags.UintVarP(&options.verbosity, "v", "v", config.DefaultLogVerbosity,
		"log level unless the KubeVirt resource says otherwise: 2 what matters, more for debugging")
	return cmd
}

const (
	// minFenceAfter leaves time for eight heartbeats and for the answers of other nodes.
	minFenceAfter = 40 * time.Second
	// defaultFenceAfter is longer than the kubelet makes a virt-handler wait that crashes again and again (5 minutes),
	// and needs no heartbeats that are not there anyhow.
	defaultFenceAfter = 10 * time.Minute
)

// validate returns an error that names a wrong flag.
func (o *Options) validate() error {
	if o.LauncherImage == "" {
		return errors.New("--launcher-image (or $LAUNCHER_IMAGE) must name virt-launcher's image")
	}
	if o.ServerImage == "" {
		return errors.New("--server-image (or $SERVER_IMAGE) must name virt-server's image")
	}
	switch corev1.PullPolicy(o.ImagePullPolicy) {
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		return fmt.Errorf("--image-pull-policy: %q is none of Always, IfNotPresent, Never", o.ImagePullPolicy)
	}
	if o.NodeTimeout <= 0 {
		return fmt.Errorf("--node-timeout: %s is not positive", o.NodeTimeout)
	}
	if o.FenceAfter != 0 && o.FenceAfter < minFenceAfter {
		return fmt.Errorf("--fence-after: %s is less than %s, in which an API server may well be silent; 0 is never",
			o.FenceAfter, minFenceAfter)
	}
	return nil
}

// Run runs virt-controller until the context ends or the lease is lost.
func (o *Options) Run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	cluster, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).
		ClientConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	return o.RunWith(ctx, cluster)
}

// RunWith runs virt-controller against a given cluster.
func (o *Options) RunWith(ctx context.Context, cluster *rest.Config) error {
	cluster = rest.CopyConfig(cluster)
	// The API server's priority and fairness is what limits; a limit here only delays, unless the KubeVirt resource has
	// one.
	limiter := config.NewLimiter(config.RateLimit{QPS: -1})
	cluster.RateLimiter = limiter
	cluster.UserAgent = names.VirtController
	return o.manage(ctx, cluster, limiter)
}
