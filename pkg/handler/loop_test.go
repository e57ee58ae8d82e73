package handler

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	k8sfake "k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/service/metrics/endpoint"
)

// informers is a cache with informers of its own; its readers read from the client.
type informers struct {
	cache.Cache
	client client.WithWatch
	kube   *k8sfake.Clientset
	lists  map[reflect.Type]client.ObjectList
	all    map[reflect.Type]toolscache.SharedIndexInformer
}

func newInformers(w *world, kube *k8sfake.Clientset) *informers {
	return &informers{
		client: w.client.(client.WithWatch), kube: kube, all: map[reflect.Type]toolscache.SharedIndexInformer{},
		lists: map[reflect.Type]client.ObjectList{
			reflect.TypeFor[*v1.VirtualMachineInstance](): &v1.VirtualMachineInstanceList{},
			reflect.TypeFor[*corev1.Pod]():                &corev1.PodList{},
		},
	}
}

func (c *informers) GetInformer(
	_ context.Context, o client.Object, _ ...cache.InformerGetOption,
) (cache.Informer, error) {
	kind := reflect.TypeOf(o)
	if c.all[kind] == nil {
		list := func() client.ObjectList { return c.lists[kind].DeepCopyObject().(client.ObjectList) }
		c.all[kind] = toolscache.NewSharedIndexInformer(
			toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
					into := list()
					return into, c.client.List(ctx, into)
				},
				WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
					return c.client.Watch(ctx, list())
				},
			}, c.kube), o, 0, toolscache.Indexers{})
	}
	return c.all[kind], nil
}

func (c *informers) WaitForCacheSync(ctx context.Context) bool {
	for _, i := range c.all {
		if !toolscache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return false
		}
	}
	return true
}

func (c *informers) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return c.client.Get(ctx, key, o, options...)
}

func (c *informers) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.client.List(ctx, list, options...)
}

// The loop is ready once its caches are synced, makes passes when a VMI, its pod or its session has news, and ends in
// order.
func TestLoop(t *testing.T) {
	w := newWorld(t)
	kube := k8sfake.NewClientset()
	store, incoming := newInformers(w, kube), newInformers(w, kube)
	h := &handler{
		log: w.node.Log, node: w.node, clients: kube, store: store, incoming: incoming, live: store.client,
		beat: newSignal(), removed: newSignal(),
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l, err := newLoop(ctx, h)
	w.must(err)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	ready, ended := make(chan struct{}), make(chan error, 1)
	running.Go(func() { ended <- l.run(ctx, ready) })
	start := func(c *informers) {
		for _, i := range c.all {
			running.Go(func() { i.RunWithContext(ctx) })
		}
	}
	start(store)
	store.WaitForCacheSync(ctx)
	select {
	case <-ready:
		t.Error("ready before the VMIs that are to come are known")
	default:
	}
	start(incoming)
	<-ready
	w.startLauncher()
	w.eventuallyPhase(v1.Running)
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_PAUSED, "user")
	w.eventually("paused", func() bool {
		return condition(w.vmi(), v1.VirtualMachineInstancePaused).Reason == vmistatus.ReasonPausedByUser
	})
	w.eventually("the events are written", func() bool {
		events, err := kube.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		started := func(e corev1.Event) bool { return e.Reason == string(v1.Started) }
		return err == nil && slices.ContainsFunc(events.Items, started)
	})
	var counted strings.Builder
	w.must(endpoint.New().Write(ctx, &counted))
	if !strings.Contains(counted.String(), `kubevirt_workqueue_adds_total{name="virt-handler-vm"}`) {
		t.Errorf("the queue is not counted by its name:\n%s", counted.String())
	}
	w.must(w.client.Delete(ctx, newPod()))
	<-h.removed
	session := l.reconciler.followed(vmiKey)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the loop ended: %v", err)
	}
	select {
	case <-session.done:
	default:
		t.Error("the loop has ended before its session")
	}
	if len(l.passes.begun) != 0 {
		t.Errorf("passes under way: %v", l.passes.begun)
	}
}
