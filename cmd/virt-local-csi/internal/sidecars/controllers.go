package sidecars

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	provisioner "github.com/kubernetes-csi/external-provisioner/v5/pkg/controller"
	resizer "github.com/kubernetes-csi/external-resizer/pkg/controller"
	resizercsi "github.com/kubernetes-csi/external-resizer/pkg/csi"
	csiresizer "github.com/kubernetes-csi/external-resizer/pkg/resizer"
	snapshotcontroller "github.com/kubernetes-csi/external-snapshotter/v8/pkg/common-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/metrics"
	snapshotsidecar "github.com/kubernetes-csi/external-snapshotter/v8/pkg/sidecar-controller"
	"github.com/kubernetes-csi/external-snapshotter/v8/pkg/snapshotter"
	"google.golang.org/grpc"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/util/workqueue"
	translation "k8s.io/csi-translation-lib"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v11/controller"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
)

// provisioner runs external-provisioner: claims get volumes, and volumes whose claims are gone go.
func (c clients) provisioner(ctx context.Context, d Driver, connection *grpc.ClientConn) error {
	plugin, capabilities, err := provisioner.GetDriverCapabilities(connection, callTimeout)
	if err != nil {
		return fmt.Errorf("ask for capabilities: %w", err)
	}
	factory := c.factory()
	classes, claims := factory.Storage().V1().StorageClasses().Lister(), factory.Core().V1().PersistentVolumeClaims()
	csiNodes, nodes := factory.Storage().V1().CSINodes().Lister(), factory.Core().V1().Nodes().Lister()
	var attachments storagelisters.VolumeAttachmentLister
	if capabilities[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME] {
		attachments = factory.Storage().V1().VolumeAttachments().Lister()
	}
	const (
		noMigration, strictTopology, immediateTopology = "", true, false
		extraMetadata, publishReadOnly, keepVolumeMode = false, false, true
		wholeUID                                       = -1
	)
	// Volumes for all nodes are made before any node is there; those for one come with the node that was chosen.
	const anyFS = ""
	volumes := provisioner.NewCSIProvisioner(
		c.kubernetes, callTimeout, d.Name, "pvc", wholeUID, connection, c.snapshots, d.Name, plugin, capabilities,
		noMigration, strictTopology, immediateTopology, translation.New(), classes, csiNodes, nodes, claims.Lister(),
		attachments, nil, extraMetadata, anyFS, nil, publishReadOnly, keepVolumeMode,
	)
	var room *roomReport
	if d.OneNode {
		room = c.roomReport(d, connection, factory)
		volumes = room.wrap(volumes)
	}
	retry := workqueue.NewItemExponentialFailureRateLimiter(retryFirst, retryLast) //nolint:staticcheck // its controller wants it
	main := controller.NewProvisionController(
		ctx, c.kubernetes, d.Name, volumes,
		controller.LeaderElection(false), controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0),
		controller.RateLimiter(retry), controller.Threadiness(workers), controller.ClaimsInformer(claims.Informer()),
		controller.CreateProvisionedPVLimiter(workqueue.DefaultControllerRateLimiter()), //nolint:staticcheck // as above
		controller.NodesLister(nodes), controller.AddFinalizer(true),
	)
	protection := provisioner.NewCloningProtectionController(
		c.kubernetes, claims.Lister(), claims.Informer(),
		workqueue.NewNamedRateLimitingQueue(retry, "clones-"+d.Name), capabilities,
	)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if err := synced(ctx, factory); err != nil {
		return err
	}
	if protection != nil {
		go protection.Run(ctx, 1)
	}
	if room != nil {
		room.start(ctx)
	}
	main.Run(ctx)
	return nil
}

// resizer runs external-resizer: volumes grow as their claims do.
func (c clients) resizer(ctx context.Context, d Driver) error {
	client, err := resizercsi.New(ctx, d.Socket, callTimeout, csimetrics.NewCSIMetricsManager(d.Name))
	if err != nil {
		return err
	}
	resize, err := csiresizer.NewResizerFromClient(client, callTimeout, c.kubernetes, d.Name)
	if err != nil {
		return err
	}
	factory := c.factory()
	main := resizer.NewResizeController(d.Name, resize, c.kubernetes, resync, factory, limiter(), true, retryLast)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	main.Run(workers, ctx)
	return nil
}

// snapshotter runs csi-snapshotter: a VolumeSnapshotContent becomes a snapshot of the driver's.
func (c clients) snapshotter(ctx context.Context, d Driver, connection *grpc.ClientConn) error {
	factory := c.snapshotInformers
	const (
		wholeUID      = -1
		extraMetadata = false
		groups        = false
	)
	main := snapshotsidecar.NewCSISnapshotSideCarController(
		c.snapshots, c.kubernetes, d.Name, factory.Snapshot().V1().VolumeSnapshotContents(),
		factory.Snapshot().V1().VolumeSnapshotClasses(), snapshotter.NewSnapshotter(connection), nil, callTimeout,
		resync, "snapshot", wholeUID, "groupsnapshot", wholeUID, extraMetadata, limiter(), groups, nil, nil, limiter(),
	)
	factory.Start(ctx.Done())
	main.Run(workers, ctx.Done(), nil)
	return nil
}

// snapshotController runs snapshot-controller, one for all drivers: it gives a VolumeSnapshot its
// VolumeSnapshotContent.
func (c clients) snapshotController(ctx context.Context) error {
	factory, core := c.snapshotInformers, c.factory()
	const distributed, keepVolumeMode, groups = false, true, false
	main := snapshotcontroller.NewCSISnapshotCommonController(
		wholeClient{c.snapshots}, c.kubernetes, factory.Snapshot().V1().VolumeSnapshots(),
		copiedContents{factory.Snapshot().V1().VolumeSnapshotContents()},
		factory.Snapshot().V1().VolumeSnapshotClasses(), nil, nil, nil,
		core.Core().V1().PersistentVolumeClaims(), core.Core().V1().PersistentVolumes(), nil,
		metrics.NewMetricsManager(), resync, limiter(), limiter(), limiter(), limiter(),
		distributed, keepVolumeMode, groups,
	)
	factory.Start(ctx.Done())
	core.Start(ctx.Done())
	defer core.Shutdown()
	main.Run(workers, ctx.Done(), nil)
	return nil
}
