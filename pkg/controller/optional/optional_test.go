package optional

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// watched is a controller that notes what it is to watch.
type watched struct {
	controller.Controller
	sources []source.Source
	err     error
}

func (w *watched) Watch(s source.Source) error {
	if w.err != nil {
		return w.err
	}
	w.sources = append(w.sources, s)
	return nil
}

// informers counts the kinds whose informers were removed.
type informers struct {
	cache.Cache
	removed int
}

func (i *informers) RemoveInformer(context.Context, client.Object) error {
	i.removed++
	return nil
}

// world is a cluster with one ConfigMap, whose kind stands for an optional one, and one follower.
type world struct {
	t           *testing.T
	definitions client.Client
	discovered  *fake.FakeDiscovery
	cache       informers
	follower    watched
	access      *Access
}

var request = reconcile.Request{NamespacedName: types.NamespacedName{Name: "configmaps.example.com"}}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, definitions: fakeclient.NewClientBuilder().Build(),
		discovered: &fake.FakeDiscovery{Fake: &clienttesting.Fake{}},
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "there"}}
	w.access = &Access{
		Kind: Kind{
			Version: schema.GroupVersion{Group: "example.com", Version: "v1"}, Resource: "configmaps",
			Object: &corev1.ConfigMap{},
		},
		Client: fakeclient.NewClientBuilder().WithObjects(object).Build(), Cache: &w.cache,
		Discovery: w.discovered, definitions: w.definitions,
	}
	w.access.Follow(&w.follower, func(context.Context, client.Object) []reconcile.Request { return nil })
	return w
}

// define makes the kind's definition, and serve has the API server know the kind.
func (w *world) define() *metav1.PartialObjectMetadata {
	w.t.Helper()
	d := definition()
	d.Name = request.Name
	if err := w.definitions.Create(w.t.Context(), d); err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) serve() {
	w.discovered.Resources = []*metav1.APIResourceList{{
		GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "configmaps"}},
	}}
}

// reconcile returns when to look again.
func (w *world) reconcile() time.Duration {
	w.t.Helper()
	result, err := w.access.Reconcile(w.t.Context(), request)
	if err != nil {
		w.t.Fatal(err)
	}
	return result.RequeueAfter
}

// check compares whether the kind is served, and whether that is settled.
func (w *world) check(when string, served, settled bool) {
	w.t.Helper()
	got, err := w.access.Settled(w.t.Context())
	if w.access.Served() != served || got != settled || err != nil {
		w.t.Errorf("%s: served %t, settled %t, %v", when, w.access.Served(), got, err)
	}
	var list corev1.ConfigMapList
	if err := w.access.List(w.t.Context(), &list); err != nil || (len(list.Items) > 0) != served {
		w.t.Errorf("%s: lists %d, %v", when, len(list.Items), err)
	}
	for name, exists := range map[string]bool{"there": true, "missing": false} {
		key := types.NamespacedName{Namespace: "default", Name: name}
		found, err := w.access.Get(w.t.Context(), key, &corev1.ConfigMap{})
		if err != nil || found != (served && exists) {
			w.t.Errorf("%s: found %s: %t, %v", when, name, found, err)
		}
	}
}

// notified checks that the follower has been notified once that the kind came or went, by an empty object: there may be
// no other whose event would wake those who wait for the kind.
func (w *world) notified(what string) {
	w.t.Helper()
	select {
	case event := <-w.access.followers[0].kind:
		if _, is := event.Object.(*corev1.ConfigMap); !is || event.Object.GetName() != "" {
			w.t.Errorf("notified of %T %q", event.Object, event.Object.GetName())
		}
	default:
		w.t.Errorf("the follower is not notified that the kind %s", what)
	}
	if len(w.access.followers[0].kind) > 0 {
		w.t.Errorf("the follower is notified again that the kind %s", what)
	}
}

// A kind comes with its definition, a moment later; when it goes, its followers are notified and nothing is watched. It
// may come again.
func TestKindComesAndGoes(t *testing.T) {
	w := newWorld(t)
	if again := w.reconcile(); again != 0 {
		t.Errorf("no definition: again in %s", again)
	}
	w.check("no definition", false, true)
	d := w.define()
	if again := w.reconcile(); again != unserved {
		t.Errorf("not served yet: again in %s", again)
	}
	w.check("not served yet", false, false)
	w.serve()
	for range 2 { // the second time there is nothing to do
		if again := w.reconcile(); again != 0 || len(w.follower.sources) != 2 {
			t.Errorf("served: again in %s, %d sources", again, len(w.follower.sources))
		}
	}
	w.check("served", true, true)
	w.notified("is served")
	if err := w.definitions.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.check("gone", false, true)
	w.notified("is gone")
	if w.reconcile(); w.cache.removed != 1 {
		t.Errorf("%d informers were removed", w.cache.removed)
	}
	w.define()
	if w.reconcile(); len(w.follower.sources) != 3 {
		t.Errorf("again: %d sources; the channel is watched already", len(w.follower.sources))
	}
	w.check("again", true, true)
}

// A definition that is being deleted is one that is gone: its kind is read no more, whatever discovery says.
func TestDefinitionBeingDeleted(t *testing.T) {
	w := newWorld(t)
	d := w.define()
	d.Finalizers = []string{"example.com/objects"}
	if err := w.definitions.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.serve()
	w.reconcile()
	w.check("served", true, true)
	if err := w.definitions.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.check("being deleted", false, true)
}

// A kind that cannot be watched is not served, and no informer stays for it.
func TestWatchFails(t *testing.T) {
	w := newWorld(t)
	w.define()
	w.serve()
	w.follower.err = errors.New("no")
	if _, err := w.access.Reconcile(t.Context(), request); !errors.Is(err, w.follower.err) {
		t.Errorf("%v", err)
	}
	if w.access.Served() || w.cache.removed != 1 {
		t.Errorf("served %t, %d informers removed", w.access.Served(), w.cache.removed)
	}
	w.follower.err = nil
	w.reconcile()
	w.check("the next time", true, true)
}

// A kind that another API server has is there when its APIService is.
func TestAggregated(t *testing.T) {
	w := newWorld(t)
	w.access.Kind.Aggregated = true
	if name := w.access.Kind.definition(); name != "v1.example.com" {
		t.Error(name)
	}
	w.define() // is not looked for
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "v1.example.com"}}
	reconcileOnce := func() time.Duration {
		t.Helper()
		result, err := w.access.Reconcile(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	w.serve()
	reconcileOnce()
	w.check("without an APIService", false, true)
	service := w.access.Kind.watched()
	service.Name = "v1.example.com"
	if kind := service.GroupVersionKind().Kind; kind != "APIService" {
		t.Error(kind)
	}
	if err := w.definitions.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	w.discovered.Resources = nil
	if again := reconcileOnce(); again != unserved {
		t.Errorf("one whose server does not answer yet: again after %s", again)
	}
	w.serve()
	reconcileOnce()
	w.check("it is served", true, true)
	w.notified("came")
	if err := w.definitions.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	reconcileOnce()
	w.check("it is gone", false, true)
}
