package handler

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

const (
	// controllerName is the work queue's name in metrics.
	controllerName = "virt-handler-vm"
	// workers is the number of VMIs that are reconciled at the same time; a pass never waits for a launcher.
	workers = 4
	// passRetryFirst and passRetryMost are the ends of the back-off after passes that failed.
	passRetryFirst, passRetryMost = 50 * time.Millisecond, 30 * time.Second
)

// loop runs the Reconciler when something changes: a VMI, its pod, or what its session saw. controller-runtime has the
// queue and the workers.
type loop struct {
	reconciler *Reconciler
	passes     passes
	events     record.EventBroadcaster
	controller controller.Controller
	handler    *handler
}

// newLoop makes a loop; sessions end with ctx.
func newLoop(ctx context.Context, h *handler) (*loop, error) {
	l := &loop{handler: h, events: record.NewBroadcaster(record.WithContext(ctx))}
	l.reconciler = &Reconciler{
		Cached: h.store, Incoming: h.incoming, Live: h.live, Node: h.node, Sessions: ctx, Lost: h.beat.call,
		Events: l.events.NewRecorder(newScheme(), corev1.EventSource{Component: names.VirtHandler, Host: h.node.Name}),
	}
	l.passes.reconciler, l.passes.now = l.reconciler.frame(), h.node.Now
	var err error
	l.controller, err = controller.NewUnmanaged(controllerName, controller.Options{
		Reconciler:              &l.passes,
		MaxConcurrentReconciles: workers,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			passRetryFirst, passRetryMost),
		UsePriorityQueue:   new(false), // first come, first served
		RecoverPanic:       new(false),
		SkipNameValidation: new(true), // for tests with several nodes in one process
		LogConstructor:     logs(logr.FromSlogHandler(h.log.Handler())),
	})
	if err != nil {
		return nil, fmt.Errorf("make the controller of VMIs: %w", err)
	}
	removed := predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { h.removed.call(); return true }}
	for _, watched := range []struct {
		cache      cache.Cache
		object     client.Object
		handler    ctrlhandler.EventHandler
		predicates []predicate.Predicate
	}{
		{h.store, &v1.VirtualMachineInstance{}, &ctrlhandler.EnqueueRequestForObject{}, nil},
		{h.incoming, &v1.VirtualMachineInstance{}, &ctrlhandler.EnqueueRequestForObject{}, nil},
		{h.store, &corev1.Pod{}, ctrlhandler.EnqueueRequestsFromMapFunc(ownerOf), []predicate.Predicate{removed}},
	} {
		// The cache knows the informer from here on, so that run waits for it.
		_, err := watched.cache.GetInformer(ctx, watched.object, cache.BlockUntilSynced(false))
		if err == nil {
			err = l.controller.Watch(source.Kind(watched.cache, watched.object, watched.handler, watched.predicates...))
		}
		if err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
	}
	if err := l.controller.Watch(source.Func(l.takeQueue)); err != nil {
		return nil, fmt.Errorf("watch sessions: %w", err)
	}
	return l, nil
}

// takeQueue takes the queue that sessions add to. They begin in passes, which the controller does not make before.
func (l *loop) takeQueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.reconciler.Enqueue = func(vmi types.NamespacedName, after time.Duration) {
		request := reconcile.Request{NamespacedName: vmi}
		if after <= 0 {
			queue.Add(request) // AddAfter would count it as a retry
		} else {
			queue.AddAfter(request, after)
		}
	}
	return nil
}

// logs makes the logger of a pass, by the key that sessions log VMIs with. What the controller says of itself is for
// debugging.
func logs(log logr.Logger) func(*reconcile.Request) logr.Logger {
	return func(request *reconcile.Request) logr.Logger {
		if request == nil {
			return log.V(1)
		}
		return log.WithValues("vmi", request.String())
	}
}

// ownerOf returns the VMI that a launcher pod belongs to.
func ownerOf(_ context.Context, pod client.Object) []reconcile.Request {
	return frame.RequestOf(pod.GetNamespace(), life.InstanceOf(pod))
}

// run works until the context ends, and closes ready when all that exists is known. It ends the passes first, then the
// events, then the sessions.
func (l *loop) run(ctx context.Context, ready chan<- struct{}) error {
	defer l.reconciler.Close()
	defer l.events.Shutdown()
	l.events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: l.handler.clients.CoreV1().Events("")})
	// The controller would give up after a while, but the API server may be away for long: launchers need this process.
	if !l.handler.store.WaitForCacheSync(ctx) || !l.handler.incoming.WaitForCacheSync(ctx) {
		return nil
	}
	close(ready)
	if err := l.controller.Start(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("reconcile VMIs: %w", err)
	}
	return nil
}
