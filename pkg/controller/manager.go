package controller

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	"kubevirt.io/api/instancetype/v1beta1"
	"kubevirt.io/api/migrations/v1alpha1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/virtkit/virtkit/pkg/controller/cdi"
	"github.com/virtkit/virtkit/pkg/controller/certificates"
	"github.com/virtkit/virtkit/pkg/controller/clonecontroller"
	"github.com/virtkit/virtkit/pkg/controller/disruptioncontroller"
	"github.com/virtkit/virtkit/pkg/controller/evacuationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/exportcontroller"
	"github.com/virtkit/virtkit/pkg/controller/guestfscontroller"
	"github.com/virtkit/virtkit/pkg/controller/kubevirtcontroller"
	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/nodecontroller"
	"github.com/virtkit/virtkit/pkg/controller/optional"
	"github.com/virtkit/virtkit/pkg/controller/policycontroller"
	"github.com/virtkit/virtkit/pkg/controller/poolcontroller"
	"github.com/virtkit/virtkit/pkg/controller/replicasetcontroller"
	"github.com/virtkit/virtkit/pkg/controller/resizecontroller"
	"github.com/virtkit/virtkit/pkg/controller/restorecontroller"
	"github.com/virtkit/virtkit/pkg/controller/snapshotcontroller"
	"github.com/virtkit/virtkit/pkg/controller/uploadcontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmcontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/controller/volumemigrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/volumesnapshots"
	"github.com/virtkit/virtkit/pkg/controller/workloadupdatecontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame/written"
	"github.com/virtkit/virtkit/pkg/version"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// eventSource is the source component of events.
const eventSource = "virtualmachine-controller"

// nameSuffix is the length of the random end of a name.
const nameSuffix = 5

// newScheme knows Kubernetes' kinds, those of KubeVirt's groups that have a reconciler here, CDI's, CSI's snapshots,
// and MultiNetworkPolicies.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme), v1beta1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme), poolv1beta1.AddToScheme(scheme), cdiv1.AddToScheme(scheme),
		snapshotv1beta1.AddToScheme(scheme), clonev1beta1.AddToScheme(scheme), exportv1beta1.AddToScheme(scheme),
		volumesnapshotv1.AddToScheme(scheme), multipolicy.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	return scheme, nil
}

// apiServices returns the names of the APIServices that lead to virt-api.
func apiServices() []string {
	var out []string
	for _, version := range v1.SubresourceGroupVersions {
		out = append(out, version.Version+"."+version.Group)
	}
	return out
}

// manage runs every reconciler on one cache.
func (o *Options) manage(ctx context.Context, cluster *rest.Config, limiter *config.Limiter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := klog.FromContext(ctx)

	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	follower, err := config.NewFollower(cluster, names.Namespace, names.KubeVirt)
	if err != nil {
		return err
	}
	follower.OnVerbosity(o.verbosity, func(v config.LogVerbosity) uint { return v.Controller }, config.SetKlog)
	follower.OnRateLimit(limiter, func(l config.RateLimits) config.RateLimit { return l.Controller })
	// Nothing may be decided on defaults that the KubeVirt resource overrides.
	followed := make(chan error, 1)
	go func() { followed <- follower.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-followed; err != nil {
			log.Info("the KubeVirt resource is followed no longer", "reason", err.Error())
		}
	}()
	select {
	case <-follower.Ready():
	case <-ctx.Done():
		return nil
	}

	lock, err := newLease(cluster, o.Identity)
	if err != nil {
		return err
	}
	mgr, err := o.newManager(ctx, cluster, lock)
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(mgr.GetScheme(), corev1.EventSource{Component: eventSource})

	rotator := certificates.New(client, dynamicClient, apiServices(),
		func() certs.Policy { return follower.Current().Certificates }, log.WithName("certificates"))
	follower.OnChange(rotator.Look)
	if err := mgr.Add(rotator); err != nil {
		return fmt.Errorf("add certificates: %w", err)
	}
	if err := o.addMetrics(mgr, cluster, client, follower.Current); err != nil {
		return fmt.Errorf("add metrics: %w", err)
	}
	if err := o.addReconcilers(ctx, mgr, recorder, follower.Current); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run controllers: %w", err)
	}
	if !o.LeaderElect {
		return nil
	}
	// All has ended, so the next leader may begin.
	releasing, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*leaseTimeout)
	defer stop()
	return lock.release(releasing)
}

// newManager makes what runs the reconcilers while it holds the lock.
func (o *Options) newManager(ctx context.Context, cluster *rest.Config, lock *lease) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:                              scheme,
		Logger:                              klog.FromContext(ctx),
		Cache:                               cacheOptions(),
		Metrics:                             metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:              o.HealthAddress,
		LeaderElection:                      o.LeaderElect,
		LeaderElectionResourceLockInterface: lock,
		LeaseDuration:                       new(leaseDuration),
		RenewDeadline:                       new(renewDeadline),
		RetryPeriod:                         new(retryPeriod),
		GracefulShutdownTimeout:             new(5 * time.Second),
		// A test runs one after the other in a process, which the check takes for a mistake.
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err !=
		nil {
		return nil, fmt.Errorf("add health checks: %w", err)
	}
	return mgr, nil
}

// others hold access to other projects' kinds, which a cluster may lack.
type others struct {
	dataVolumes     *cdi.Access
	volumeSnapshots *volumesnapshots.Access
	bound           *volumesnapshots.Bound
	storage         *volumesnapshots.Storage
	networkPolicies *optional.Access
	routes          *optional.Access
	entrances       *exportcontroller.Ways
}

func newOthers(mgr ctrl.Manager) (*others, error) {
	api, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	access := func(kind optional.Kind) *optional.Access {
		return &optional.Access{Kind: kind, Client: mgr.GetClient(), Cache: mgr.GetCache(), Discovery: api}
	}
	routeCache, err := exportcontroller.RouteCache(mgr)
	if err != nil {
		return nil, err
	}
	routes := &optional.Access{
		Kind: exportcontroller.Routes(), Client: routeCache, Cache: routeCache, Discovery: api,
	}
	return &others{
		routes: routes,
		entrances: &exportcontroller.Ways{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Routes: routes,
		},
		dataVolumes:     &cdi.Access{Access: access(cdi.DataVolumes())},
		volumeSnapshots: &volumesnapshots.Access{Access: access(volumesnapshots.Kind())},
		bound:           &volumesnapshots.Bound{Access: access(volumesnapshots.BoundKind())},
		storage: &volumesnapshots.Storage{
			Client: mgr.GetClient(), Classes: access(volumesnapshots.Classes()),
			Profiles: access(volumesnapshots.Profiles()),
		},
		networkPolicies: access(policycontroller.Policies()),
	}, nil
}

func (o *others) setUp(mgr ctrl.Manager) error {
	return errors.Join(
		o.dataVolumes.SetupWithManager(mgr),
		o.volumeSnapshots.SetupWithManager(mgr),
		o.bound.SetupWithManager(mgr),
		o.storage.Classes.SetupWithManager(mgr),
		o.storage.Profiles.SetupWithManager(mgr),
		o.networkPolicies.SetupWithManager(mgr),
		o.routes.SetupWithManager(mgr),
	)
}

// addReconcilers makes all reconcilers and registers them.
func (o *Options) addReconcilers(
	ctx context.Context, mgr ctrl.Manager, recorder record.EventRecorder, current func() config.Config,
) error {
	client, live := mgr.GetClient(), mgr.GetAPIReader()
	others, err := newOthers(mgr)
	if err != nil {
		return err
	}
	dataVolumes, volumeSnapshots, storage := others.dataVolumes, others.volumeSnapshots, others.storage
	freezer := o.freezer
	if freezer == nil {
		if freezer, err = snapshotcontroller.NewFreezer(mgr.GetConfig()); err != nil {
			return err
		}
	}
	created := &written.Creations{}
	vmis := &vmicontroller.Reconciler{
		Created: created,
		Client:  client, Live: live, Recorder: recorder, Config: current, Now: time.Now, Random: rand.Uint32N,
		CDI:   dataVolumes,
		Image: o.LauncherImage, ImagePullPolicy: corev1.PullPolicy(o.ImagePullPolicy), FenceAfter: o.FenceAfter,
	}
	migrations := &migrationcontroller.Reconciler{
		Created: created,
		Client:  client, Live: live, Recorder: recorder, Config: current, Now: time.Now,
		Image: o.LauncherImage, ImagePullPolicy: corev1.PullPolicy(o.ImagePullPolicy), FenceAfter: o.FenceAfter,
	}
	replicaSets := &replicasetcontroller.Reconciler{Client: client, Live: live, Recorder: recorder, Now: time.Now}
	pools := &poolcontroller.Reconciler{
		Client: client, Live: live, Recorder: recorder, Now: time.Now,
		Shuffle: rand.Shuffle, CDI: dataVolumes,
	}
	vms := &vmcontroller.Reconciler{
		Client: client, Live: live, Recorder: recorder, Config: current, Now: time.Now,
		CDI: dataVolumes, Storage: storage,
	}
	vmSnapshots := &snapshotcontroller.Reconciler{
		Client: client, Live: live, Recorder: recorder, Now: time.Now,
		CDI: dataVolumes, VolumeSnapshots: volumeSnapshots, Storage: storage,
	}
	contents := &snapshotcontroller.Contents{
		Client: client, Live: live, Recorder: recorder, Now: time.Now, Freezer: freezer,
		VolumeSnapshots: volumeSnapshots, Bound: others.bound, Storage: storage,
	}
	if saver, ok := freezer.(snapshotcontroller.MemorySaver); ok {
		contents.Memory = saver
	}
	sizes := &resizecontroller.Reconciler{
		Client: client, Live: live, Recorder: recorder, Config: current, Now: time.Now,
	}
	exchanges := &volumemigrationcontroller.Reconciler{
		Client: client, Live: live, Recorder: recorder, Now: time.Now, CDI: dataVolumes,
		VolumeSnapshots: volumeSnapshots,
	}
	networkPolicies := &policycontroller.Reconciler{Client: client, Policies: others.networkPolicies}
	nodes := &nodecontroller.Reconciler{Client: client, Recorder: recorder, Timeout: o.NodeTimeout, Now: time.Now}
	evacuations := &evacuationcontroller.Reconciler{
		Client: client, Recorder: recorder, Config: current, Now: time.Now,
	}
	budgets := &disruptioncontroller.Reconciler{Client: client, Recorder: recorder, Config: current}
	updates := &workloadupdatecontroller.Reconciler{
		Client: client, Recorder: recorder, Image: o.LauncherImage, Now: time.Now,
		Limit: func() int { return int(*current().Migrations.ParallelMigrationsPerCluster) },
	}
	installation := &kubevirtcontroller.Reconciler{Client: client, Config: current, Version: version.Get().
		GitVersion, Now: time.Now}
	restores := &restorecontroller.Reconciler{
		Client: client, Live: live, Recorder: recorder, Now: time.Now, CDI: dataVolumes, Snapshots: volumeSnapshots,
	}
	clones := &clonecontroller.Reconciler{
		Client: client, Live: live, Recorder: recorder, Now: time.Now,
		Suffix:    func() string { return utilrand.String(nameSuffix) },
		Snapshots: volumeSnapshots, Classes: storage,
	}
	imageUploads := &uploadcontroller.Reconciler{
		Client: client, Config: current, Now: time.Now,
		Image: o.LauncherImage, ImagePullPolicy: corev1.PullPolicy(o.ImagePullPolicy),
	}
	sessions := &guestfscontroller.Reconciler{Client: client, Now: time.Now}
	vmExports := &exportcontroller.Reconciler{
		Client: client, Live: live, Recorder: recorder, Config: current, Now: time.Now,
		Suffix: func() string { return utilrand.String(nameSuffix) }, Token: cryptorand.Text,
		CDI: dataVolumes, Snapshots: volumeSnapshots, Entrances: others.entrances,
		Image: o.ServerImage, ImagePullPolicy: corev1.PullPolicy(o.ImagePullPolicy),
	}
	exportProxy := &exportcontroller.Proxy{Client: client, Entrances: others.entrances}
	err = errors.Join(
		others.setUp(mgr),
		imageUploads.SetupWithManager(ctx, mgr),
		sessions.SetupWithManager(mgr),
		vmis.SetupWithManager(ctx, mgr),
		migrations.SetupWithManager(ctx, mgr),
		vms.SetupWithManager(ctx, mgr),
		sizes.SetupWithManager(mgr),
		exchanges.SetupWithManager(mgr),
		networkPolicies.SetupWithManager(mgr),
		nodes.SetupWithManager(ctx, mgr),
		evacuations.SetupWithManager(ctx, mgr),
		budgets.SetupWithManager(ctx, mgr),
		installation.SetupWithManager(mgr),
		updates.SetupWithManager(mgr),
		replicaSets.SetupWithManager(ctx, mgr),
		pools.SetupWithManager(ctx, mgr),
		vmSnapshots.SetupWithManager(ctx, mgr),
		contents.SetupWithManager(mgr),
		restores.SetupWithManager(mgr),
		clones.SetupWithManager(mgr),
		vmExports.SetupWithManager(mgr),
		exportProxy.SetupWithManager(mgr),
	)
	if err != nil {
		return fmt.Errorf("set up controllers: %w", err)
	}
	return nil
}
