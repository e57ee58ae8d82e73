// Package optional reads a kind that the cluster may lack, and that may be installed and removed while virt-controller
// runs: CDI's DataVolumes, CSI's VolumeSnapshots, OpenShift's Routes. Without it nothing is watched.
package optional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// unserved is the delay before the next look at a definition that exists but is not served yet.
	unserved = time.Second
	// patience bounds how long a read of the cache may wait for its first filling.
	patience = 10 * time.Second
)

// Kind identifies a kind by the API server's names.
type Kind struct {
	// Version is the group and version, Resource the plural name.
	Version  schema.GroupVersion
	Resource string
	// Object is an empty object of the kind.
	Object client.Object
	// Aggregated says that the kind may be another API server's, so that its APIService is looked for instead of a
	// definition. Kinds with a definition have one, too.
	Aggregated bool
}

// definition returns the name of the CustomResourceDefinition or APIService whose being there means that the kind is.
func (k Kind) definition() string {
	if k.Aggregated {
		return k.Version.Version + "." + k.Version.Group
	}
	return k.Resource + "." + k.Version.Group
}

// watched returns the kind of the definition, as metadata only.
func (k Kind) watched() *metav1.PartialObjectMetadata {
	object := definition()
	if k.Aggregated {
		object.SetGroupVersionKind(schema.GroupVersionKind{
			Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService",
		})
	}
	return object
}

// Access reads objects of a kind where it is served. It watches for the kind's definition, and has its followers watch
// the objects from when it is served until it is gone.
type Access struct {
	Kind Kind
	// Client and Cache are the manager's, or a cache of the kind's own; Discovery lists what the API server serves.
	Client    client.Reader
	Cache     cache.Cache
	Discovery discovery.ServerResourcesInterface

	mu          sync.Mutex
	served      bool
	followers   []follower
	definitions client.Reader
}

type follower struct {
	controller controller.Controller
	users      handler.MapFunc
	// kind notifies the controller that the kind is served, or no longer, for which the objects have no events.
	kind chan event.GenericEvent
}

// SetupWithManager registers the watch for the kind's definition.
func (a *Access) SetupWithManager(mgr ctrl.Manager) error {
	name := a.Kind.definition()
	// A cache of its own: the manager's has one selector for all definitions.
	definitions, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			a.Kind.watched(): {
				Field:     fields.OneTermEqualSelector("metadata.name", name),
				Transform: cache.TransformStripManagedFields(),
			},
		},
	})
	if err != nil {
		return fmt.Errorf("make the cache of definition %s: %w", name, err)
	}
	if err := mgr.Add(definitions); err != nil {
		return fmt.Errorf("add the cache of definition %s: %w", name, err)
	}
	a.definitions = definitions
	built, err := controller.New(a.Kind.Resource, mgr, controller.Options{Reconciler: a})
	if err != nil {
		return fmt.Errorf("make the controller of definition %s: %w", name, err)
	}
	return built.Watch(source.Kind(definitions, client.Object(a.Kind.watched()), &handler.EnqueueRequestForObject{}))
}

// definition returns the kind CustomResourceDefinition, as metadata only.
func definition() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	})
	return object
}

// Follow has a controller work on the users of each object that changes; and when the kind is served, or no longer, on
// the users of an empty object: there need be no object then. It must be called before the manager starts.
func (a *Access) Follow(c controller.Controller, users handler.MapFunc) {
	a.followers = append(a.followers, follower{controller: c, users: users})
}

// Served reports whether the cluster has the kind.
func (a *Access) Served() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.served
}

// Settled reports whether Served will stay as it is: not in the moment between the definition's being there and its
// kind's being served.
func (a *Access) Settled(ctx context.Context) (bool, error) {
	if a.Served() {
		return true, nil
	}
	found := a.Kind.watched()
	err := a.definitions.Get(ctx, types.NamespacedName{Name: a.Kind.definition()}, found)
	if err == nil {
		return found.DeletionTimestamp != nil, nil
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, fmt.Errorf("get definition %s: %w", a.Kind.definition(), err)
}

// List fills in a list of the kind, which stays empty when the cluster does not know the kind.
func (a *Access) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if !a.Served() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := a.Client.List(ctx, into, options...); err != nil {
		return fmt.Errorf("list %s: %w", a.Kind.Resource, err)
	}
	return nil
}

// Get fills in an object of the kind. It reports whether the object exists: it does not when the cluster does not know
// the kind.
func (a *Access) Get(ctx context.Context, key types.NamespacedName, into client.Object) (bool, error) {
	if !a.Served() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := a.Client.Get(ctx, key, into)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get %s %s: %w", a.Kind.Resource, key.Name, err)
	}
	return true, nil
}

// Reconcile looks whether the kind came or went.
func (a *Access) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	found := a.Kind.watched()
	err := a.definitions.Get(ctx, request.NamespacedName, found)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, a.gone(ctx)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get definition %s: %w", request.Name, err)
	case found.DeletionTimestamp != nil:
		return reconcile.Result{}, a.gone(ctx)
	case a.Served():
		return reconcile.Result{}, nil
	}
	served, err := a.discovered()
	if err != nil {
		return reconcile.Result{}, err
	}
	if !served {
		return reconcile.Result{RequeueAfter: unserved}, nil
	}
	return reconcile.Result{}, a.came(ctx)
}

// discovered asks the API server, since a definition is there for a moment before its kind is.
func (a *Access) discovered() (bool, error) {
	list, err := a.Discovery.ServerResourcesForGroupVersion(a.Kind.Version.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the kinds of %s: %w", a.Kind.Version, err)
	}
	is := func(r metav1.APIResource) bool { return r.Name == a.Kind.Resource }
	return slices.ContainsFunc(list.APIResources, is), nil
}

func (a *Access) came(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.followers {
		f, users := &a.followers[i], handler.EnqueueRequestsFromMapFunc(a.followers[i].users)
		err := f.controller.Watch(source.Kind(a.Cache, a.Kind.Object, users))
		if err == nil && f.kind == nil {
			f.kind = make(chan event.GenericEvent, 1)
			err = f.controller.Watch(source.Channel(f.kind, users))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("watch %s: %w", a.Kind.Resource, err),
				a.Cache.RemoveInformer(ctx, a.Kind.Object))
		}
	}
	a.served = true
	ctrl.LoggerFrom(ctx).Info("a kind is served", "definition", a.Kind.definition())
	a.notify()
	return nil
}

// notify has the followers work on the users of an empty object; a.mu is held.
func (a *Access) notify() {
	for _, f := range a.followers {
		select {
		case f.kind <- event.GenericEvent{Object: a.Kind.Object.DeepCopyObject().(client.Object)}:
		default: // it has yet to take the last one, and looks afterwards
		}
	}
}

func (a *Access) gone(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.served {
		return nil
	}
	a.served = false
	ctrl.LoggerFrom(ctx).Info("a kind is served no longer", "definition", a.Kind.definition())
	a.notify()
	return a.Cache.RemoveInformer(ctx, a.Kind.Object)
}
