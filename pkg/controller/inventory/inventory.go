// Package inventory exposes to Prometheus what exists in the cluster: VMs, VMIs, migrations, and how long they
// take from phase to phase. It reads what the reconcilers' caches have and keeps nothing of it; the
// virt-controller that leads does it.
//
//	caches ──list of pointers──► Cluster ──Write (pure)──► metrics.Writer
//	       └─events──► Transitions ──► histograms
package inventory

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/metrics"
	"github.com/virtkit/virtkit/pkg/service/metrics/endpoint"
)

// Cluster holds the objects that exist. They belong to the caches and are not to be changed.
type Cluster struct {
	Instances  []*v1.VirtualMachineInstance
	Machines   []*v1.VirtualMachine
	Migrations []*v1.VirtualMachineInstanceMigration
	Snapshots  []*snapshotv1beta1.VirtualMachineSnapshot
	Restores   []*snapshotv1beta1.VirtualMachineRestore
	Claims     []*corev1.PersistentVolumeClaim
	Nodes      []*corev1.Node
	// Pods are those that run and say that they are launchers, by their UIDs.
	Pods map[types.UID]*corev1.Pod
	// Claim returns a claim, nil when there is none.
	Claim  func(types.NamespacedName) *corev1.PersistentVolumeClaim
	Config config.Config
}

// Inventory is a leader's work: Start runs until its context ends.
type Inventory struct {
	Cache  cache.Cache
	Config func() config.Config
	// Endpoint gets the inventory's metrics while this replica leads.
	Endpoint    *endpoint.Endpoint
	Transitions *Transitions
}

// NeedLeaderElection returns true: only the leader exposes the metrics, since two replicas would count them twice.
func (i *Inventory) NeedLeaderElection() bool { return true }

// indexed is the informer of one kind.
type indexed interface {
	GetIndexer() toolscache.Indexer
}

// Start exposes the inventory until the context ends.
func (i *Inventory) Start(ctx context.Context) error {
	lists := map[string]toolscache.Indexer{}
	for kind, object := range map[string]client.Object{
		"instances": &v1.VirtualMachineInstance{}, "machines": &v1.VirtualMachine{},
		"migrations": &v1.VirtualMachineInstanceMigration{}, "snapshots": &snapshotv1beta1.VirtualMachineSnapshot{},
		"restores": &snapshotv1beta1.VirtualMachineRestore{},
		"nodes":    &corev1.Node{}, "pods": &corev1.Pod{}, "claims": &corev1.PersistentVolumeClaim{},
	} {
		informer, err := i.Cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		of, ok := informer.(indexed)
		if !ok {
			return fmt.Errorf("list %s: the cache of %T has no index", kind, object)
		}
		lists[kind] = of.GetIndexer()
		handler := i.Transitions.instances()
		switch kind {
		case "instances":
		case "migrations":
			handler = i.Transitions.migrations()
		default:
			continue
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // it fails when the informer has ended
	}
	stop := i.Endpoint.Add(func(_ context.Context, w *metrics.Writer) {
		c := Cluster{
			Instances:  all[*v1.VirtualMachineInstance](lists["instances"]),
			Machines:   all[*v1.VirtualMachine](lists["machines"]),
			Migrations: all[*v1.VirtualMachineInstanceMigration](lists["migrations"]),
			Snapshots:  all[*snapshotv1beta1.VirtualMachineSnapshot](lists["snapshots"]),
			Restores:   all[*snapshotv1beta1.VirtualMachineRestore](lists["restores"]),
			Claims:     all[*corev1.PersistentVolumeClaim](lists["claims"]),
			Nodes:      all[*corev1.Node](lists["nodes"]),
			Pods:       launchers(all[*corev1.Pod](lists["pods"])), Config: i.Config(),
			Claim: func(key types.NamespacedName) *corev1.PersistentVolumeClaim {
				object, _, err := lists["claims"].GetByKey(key.String())
				claim, ok := object.(*corev1.PersistentVolumeClaim)
				if err != nil || !ok {
					return nil
				}
				return claim
			},
		}
		c.Write(w)
	})
	defer stop()
	<-ctx.Done()
	return nil
}

// all returns the objects of an index, which are not to be changed.
func all[T any](index toolscache.Indexer) []T {
	objects := index.List()
	out := make([]T, 0, len(objects))
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}

func launchers(pods []*corev1.Pod) map[types.UID]*corev1.Pod {
	out := make(map[types.UID]*corev1.Pod, len(pods))
	for _, pod := range pods {
		if pod.Labels[v1.AppLabel] == names.VirtLauncher && pod.Status.Phase == corev1.PodRunning {
			out[pod.UID] = pod
		}
	}
	return out
}
