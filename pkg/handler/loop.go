package handler

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/names"
)

// workers is how many VMIs are reconciled at the same time; a pass never waits for a launcher.
const workers = 4

// loop runs the Reconciler when something changes: a VMI, its pod, or what its session saw.
type loop struct {
	reconciler *Reconciler
	frame      reconcile.Reconciler
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName]
	synced     []toolscache.InformerSynced
	events     record.EventBroadcaster
	handler    *handler
	passes     passes
}

// newLoop makes a loop; sessions end with ctx.
func newLoop(ctx context.Context, h *handler) (*loop, error) {
	l := &loop{
		handler: h,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](50*time.Millisecond, 30*time.Second),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "virt-handler-vm"}),
		events: record.NewBroadcaster(record.WithContext(ctx)),
	}
	l.reconciler = &Reconciler{
		Cached: h.store, Coming: h.coming, Live: h.live, Node: h.node, Sessions: ctx, Lost: h.beat.call,
		Events: l.events.NewRecorder(newScheme(), corev1.EventSource{Component: names.VirtHandler, Host: h.node.Name}),
		Enqueue: func(key types.NamespacedName, after time.Duration) {
			if after <= 0 {
				l.queue.Add(key)
			} else {
				l.queue.AddAfter(key, after)
			}
		},
	}
	l.frame = l.reconciler.frame()
	self := func(o client.Object) (types.NamespacedName, bool) { return client.ObjectKeyFromObject(o), true }
	for _, watched := range []struct {
		store  cache.Cache
		object client.Object
		key    func(client.Object) (types.NamespacedName, bool)
	}{
		{h.store, &v1.VirtualMachineInstance{}, self},
		{h.coming, &v1.VirtualMachineInstance{}, self},
		{h.store, &corev1.Pod{}, ownerOf},
	} {
		informer, err := watched.store.GetInformer(ctx, watched.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		add := func(object any) {
			if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if o, ok := object.(client.Object); ok {
				if key, ok := watched.key(o); ok {
					l.queue.Add(key)
				}
			}
		}
		_, pods := watched.object.(*corev1.Pod)
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
			DeleteFunc: func(object any) {
				add(object)
				if pods {
					h.removed.call()
				}
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
		l.synced = append(l.synced, registration.HasSynced)
	}
	return l, nil
}

// ownerOf is the VMI that a launcher pod belongs to.
func ownerOf(pod client.Object) (types.NamespacedName, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "VirtualMachineInstance" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name}, true
}

// run works until the context ends, and closes ready when all that exists is known.
func (l *loop) run(ctx context.Context, ready chan<- struct{}) error {
	defer l.reconciler.Close()
	defer l.events.Shutdown()
	l.events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: l.handler.clients.CoreV1().Events("")})
	if !toolscache.WaitForCacheSync(ctx.Done(), l.synced...) {
		return nil
	}
	close(ready)
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	l.queue.ShutDown()
	work.Wait()
	return nil
}

func (l *loop) next(ctx context.Context) bool {
	key, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(key)
	l.passes.begin(key, l.handler.node.Now())
	defer l.passes.end(key)
	result, err := l.frame.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	switch {
	case err != nil && ctx.Err() == nil:
		l.handler.log.Warn("pass failed", "vmi", key.String(), "error", err)
		l.queue.AddRateLimited(key)
		return true
	case result.RequeueAfter > 0:
		l.queue.AddAfter(key, result.RequeueAfter)
	}
	l.queue.Forget(key)
	return true
}
