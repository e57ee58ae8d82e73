// Package sidecars runs Kubernetes' own CSI sidecars in this process: external-provisioner, external-resizer,
// csi-snapshotter, and the snapshot controller with its CRDs. Their programs are main packages; this is what those do
// with their own libraries, without flags, metrics and leader election, of which a cluster on one machine has no use.
//
//	in:  claims, volumes, snapshots (API server)
//	out: calls of the drivers (CSI, at a unix socket each), PersistentVolumes, VolumeSnapshotContents, events
package sidecars

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	snapshotinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// callTimeout is how long a call of a driver may take.
	callTimeout = time.Minute
	// workers is how many calls of a kind are under way at most.
	workers = 10
	// retryFirst and retryLast are the pauses before a call that failed is tried again; they double in between.
	retryFirst, retryLast = time.Second, 10 * time.Second
	// resync is when all objects are looked at again although nothing has happened.
	resync = 15 * time.Minute
)

// Driver is a driver that the sidecars serve.
type Driver struct {
	Name string
	// Socket is where it answers.
	Socket string
	// Snapshots says that it can make snapshots and expand volumes.
	Snapshots bool
	// OneNode says that it has volumes which only one node can use: the scheduler is to know where there is room.
	OneNode bool
}

// clients are how the sidecars speak with the API server.
type clients struct {
	kubernetes kubernetes.Interface
	snapshots  snapshotclient.Interface
	// snapshotInformers are one set for all controllers of snapshots, whose objects come as JSON: each that is decoded
	// once more keeps the guests of which snapshots are made from writing that much longer.
	snapshotInformers snapshotinformers.SharedInformerFactory
}

// Prepare makes the CRDs and classes, the VolumeSnapshotClass last.
func Prepare(ctx context.Context, config *rest.Config) error {
	c, err := newClients(config)
	if err != nil {
		return err
	}
	crds := make(chan error, 1)
	go func() { crds <- makeCRDs(ctx, config) }()
	if err := errors.Join(makeClasses(ctx, c), <-crds); err != nil {
		return err
	}
	return makeSnapshotClass(ctx, c)
}

// Run runs the sidecars of all drivers, after Prepare, until ctx is done or one of them cannot go on.
func Run(ctx context.Context, config *rest.Config, drivers []Driver) error {
	// Events are about objects of these types.
	if err := snapshotscheme.AddToScheme(scheme.Scheme); err != nil {
		return fmt.Errorf("register the snapshot types: %w", err)
	}
	c, err := newClients(config)
	if err != nil {
		return err
	}
	return c.run(ctx, drivers)
}

func newClients(config *rest.Config) (clients, error) {
	core := rest.CopyConfig(config)
	core.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(core)
	if err != nil {
		return clients{}, fmt.Errorf("make a client: %w", err)
	}
	snapshots, err := snapshotclient.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("make a client: %w", err)
	}
	return clients{client, snapshots, snapshotinformers.NewSharedInformerFactory(snapshots, resync)}, nil
}

// run runs the controllers side by side. The first that fails ends the others.
func (c clients) run(ctx context.Context, drivers []Driver) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.snapshotInformers.Shutdown()
	defer cancel()
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	start := func(what string, do func(context.Context) error) {
		group.Go(func() {
			err := do(ctx)
			if ctx.Err() == nil { // it was not asked to end
				mu.Lock()
				errs = append(errs, fmt.Errorf("%s: %w", what, ended(err)))
				mu.Unlock()
				cancel()
			}
		})
	}
	start("snapshot controller", c.snapshotController)
	for _, d := range drivers {
		// The driver may begin to answer a moment later.
		connection, err := grpc.NewClient("unix:"+d.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		if err != nil {
			cancel()
			group.Wait()
			return fmt.Errorf("connect to driver %s: %w", d.Name, err)
		}
		defer connection.Close()
		start("provisioner of "+d.Name, func(ctx context.Context) error { return c.provisioner(ctx, d, connection) })
		if d.Snapshots {
			start("resizer of "+d.Name, func(ctx context.Context) error { return c.resizer(ctx, d) })
			start("snapshotter of "+d.Name, func(ctx context.Context) error {
				return c.snapshotter(ctx, d, connection)
			})
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// ended returns the error of a part that has ended although nobody asked it to.
func ended(err error) error {
	if err == nil {
		return errors.New("ended by itself")
	}
	return err
}

// factory makes informers of Kubernetes' own types, which the caller starts.
func (c clients) factory() informers.SharedInformerFactory {
	return informers.NewSharedInformerFactory(c.kubernetes, resync)
}

func limiter() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast)
}

// synced waits for the caches of a factory.
func synced(ctx context.Context, f informers.SharedInformerFactory) error {
	for kind, ok := range f.WaitForCacheSync(ctx.Done()) {
		if !ok && ctx.Err() == nil {
			return fmt.Errorf("cannot list %v", kind)
		}
	}
	klog.FromContext(ctx).V(4).Info("Caches are synced")
	return nil
}
