package sidecars

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/external-provisioner/v5/pkg/capacity"
	"github.com/kubernetes-csi/external-provisioner/v5/pkg/capacity/topology"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v11/controller"
)

const (
	// roomNamespace has the CSIStorageCapacity objects.
	roomNamespace = metav1.NamespaceSystem
	// roomManager is the value of their label for who keeps them.
	roomManager = "virt-local"
	// roomInterval is when they are looked at again although no volume was made or deleted.
	roomInterval = time.Minute
)

// roomReport is external-provisioner's controller of CSIStorageCapacity objects: how much room each class that waits
// for a pod has on each node, by which the scheduler chooses one.
type roomReport struct {
	main    *capacity.Controller
	nodes   topology.Informer
	factory informers.SharedInformerFactory
}

// roomReport makes the controller. What it needs of the factory is started with that.
func (c clients) roomReport(
	d Driver, connection *grpc.ClientConn, factory informers.SharedInformerFactory,
) *roomReport {
	queue := func(name string) workqueue.RateLimitingInterface { //nolint:staticcheck // its controller wants it
		limiter := workqueue.NewItemExponentialFailureRateLimiter(retryFirst, retryLast) //nolint:staticcheck // as above
		return workqueue.NewNamedRateLimitingQueue(limiter, name+"-"+d.Name)
	}
	nodes := topology.NewNodeTopology(
		d.Name, c.kubernetes, factory.Core().V1().Nodes(), factory.Storage().V1().CSINodes(), queue("topology"),
	)
	ours := informers.NewSharedInformerFactoryWithOptions(
		c.kubernetes, resync, informers.WithNamespace(roomNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = labels.Set{
				capacity.DriverNameLabel: d.Name, capacity.ManagedByLabel: roomManager,
			}.String()
		}),
	)
	const immediateBinding = false
	main := capacity.NewCentralCapacityController(
		csi.NewControllerClient(connection), d.Name, capacity.NewV1ClientFactory(c.kubernetes), queue("capacity"), nil,
		roomManager, roomNamespace, nodes, factory.Storage().V1().StorageClasses(),
		ours.Storage().V1().CSIStorageCapacities(), roomInterval, immediateBinding, callTimeout,
	)
	return &roomReport{main, nodes, ours}
}

// wrap returns a provisioner after whose changes the controller looks again.
func (r *roomReport) wrap(p controller.Provisioner) controller.Provisioner {
	return capacity.NewProvisionWrapper(p, r.main)
}

// start runs the controller until ctx is done; the factory that it was made with is started and synced.
func (r *roomReport) start(ctx context.Context) {
	r.factory.Start(ctx.Done())
	go r.nodes.RunWorker(ctx)
	go r.main.Run(ctx, 1)
}
