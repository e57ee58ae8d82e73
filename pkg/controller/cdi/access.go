package cdi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// CRDName is the definition whose being there means that CDI's API is.
const CRDName = "datavolumes.cdi.kubevirt.io"

const (
	resource = "datavolumes"
	// unserved is when to look again at a definition that is there but not served yet.
	unserved = time.Second
	// patience is how long a read of the cache may wait for its first filling.
	patience = 10 * time.Second
)

// Definition is the kind that Access watches, as metadata only; cache options of the manager must narrow it to CRDName.
func Definition() *metav1.PartialObjectMetadata {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition",
	})
	return definition
}

// Access reads DataVolumes where there are any. It watches for CDI's definition, and has its followers watch
// DataVolumes from when it is served until it is gone.
type Access struct {
	// Client and Cache are the manager's, Discovery tells what the API server serves.
	Client    client.Client
	Cache     cache.Cache
	Discovery discovery.ServerResourcesInterface

	mu        sync.Mutex
	installed bool
	followers []follower
}

type follower struct {
	controller controller.Controller
	users      handler.MapFunc
}

// SetupWithManager registers the watch for CDI's definition.
func (a *Access) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("cdi").For(Definition()).Complete(a)
}

// Follow has a controller work on the users of each DataVolume that changes. It must be called before the manager
// starts.
func (a *Access) Follow(c controller.Controller, users handler.MapFunc) {
	a.followers = append(a.followers, follower{c, users})
}

// Installed reports whether the cluster has DataVolumes.
func (a *Access) Installed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.installed
}

// Get is a DataVolume, nil when there is none or the cluster does not know of any.
func (a *Access) Get(ctx context.Context, namespace, name string) (*cdiv1.DataVolume, error) {
	if !a.Installed() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dv := &cdiv1.DataVolume{}
	err := a.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, dv)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get DataVolume %s: %w", name, err)
	}
	return dv, nil
}

// Reconcile looks whether CDI came or went.
func (a *Access) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	definition := Definition()
	err := a.Client.Get(ctx, request.NamespacedName, definition)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, a.gone(ctx)
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get definition %s: %w", request.Name, err)
	case definition.DeletionTimestamp != nil:
		return reconcile.Result{}, a.gone(ctx)
	case a.Installed():
		return reconcile.Result{}, nil
	}
	served, err := a.served()
	if err != nil {
		return reconcile.Result{}, err
	}
	if !served {
		return reconcile.Result{RequeueAfter: unserved}, nil
	}
	return reconcile.Result{}, a.came(ctx)
}

// served asks the API server, since a definition is there for a moment before its kind is.
func (a *Access) served() (bool, error) {
	list, err := a.Discovery.ServerResourcesForGroupVersion(cdiv1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the kinds of %s: %w", cdiv1.SchemeGroupVersion, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}

func (a *Access) came(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.followers {
		kind := source.Kind(a.Cache, client.Object(&cdiv1.DataVolume{}), handler.EnqueueRequestsFromMapFunc(f.users))
		if err := f.controller.Watch(kind); err != nil {
			return errors.Join(fmt.Errorf("watch DataVolumes: %w", err),
				a.Cache.RemoveInformer(ctx, &cdiv1.DataVolume{}))
		}
	}
	a.installed = true
	ctrl.LoggerFrom(ctx).Info("DataVolumes are served: CDI is there")
	return nil
}

func (a *Access) gone(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.installed {
		return nil
	}
	a.installed = false
	ctrl.LoggerFrom(ctx).Info("DataVolumes are served no longer: CDI is gone")
	return a.Cache.RemoveInformer(ctx, &cdiv1.DataVolume{})
}
