package kubevirt

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/config"
	"github.com/virtkit/virtkit/pkg/names"
)

// settle is how long the status waits for more news while the components come up one pod after the
// other; being available at last, or no more, is written at once.
const settle = time.Second

// Reconciler reads the KubeVirt resource, Deployments and DaemonSets of the installation's namespace
// from Client's cache, and writes the resource's status.
type Reconciler struct {
	Client  client.Client
	Config  func() config.Config
	Version string
	Now     func() time.Time

	written time.Time
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: names.Namespace, Name: names.KubeVirt}}}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("kubevirt").
		For(&v1.KubeVirt{}).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(one)).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(one)).
		Complete(r)
}

// Reconcile brings the status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Namespace != names.Namespace || request.Name != names.KubeVirt {
		return reconcile.Result{}, nil // Only one counts; admission refuses others.
	}
	kv := &v1.KubeVirt{}
	if err := r.Client.Get(ctx, request.NamespacedName, kv); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	view := View{
		KubeVirt: kv, Version: r.Version, Architecture: r.Config().Architecture, Now: r.Now(),
		Deployments: map[string]*appsv1.Deployment{}, DaemonSets: map[string]*appsv1.DaemonSet{},
	}
	var deployments appsv1.DeploymentList
	if err := r.Client.List(ctx, &deployments, client.InNamespace(names.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("list deployments: %w", err)
	}
	for i := range deployments.Items {
		view.Deployments[deployments.Items[i].Name] = &deployments.Items[i]
	}
	var daemonSets appsv1.DaemonSetList
	if err := r.Client.List(ctx, &daemonSets, client.InNamespace(names.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("list daemon sets: %w", err)
	}
	for i := range daemonSets.Items {
		view.DaemonSets[daemonSets.Items[i].Name] = &daemonSets.Items[i]
	}

	status := Status(view)
	if equality.Semantic.DeepEqual(kv.Status, status) {
		return reconcile.Result{}, nil
	}
	if left := settle - view.Now.Sub(r.written); left > 0 && !urgent(kv.Status, status) {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	before := kv.DeepCopy()
	kv.Status = status
	err := r.Client.Status().Patch(ctx, kv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: settle}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("write status: %w", err)
	}
	r.written = view.Now
	return reconcile.Result{}, nil
}

// urgent reports whether the phase or a condition changes, not only a message.
func urgent(old, status v1.KubeVirtStatus) bool {
	if old.Phase != status.Phase || len(old.Conditions) != len(status.Conditions) {
		return true
	}
	for i := range old.Conditions {
		if old.Conditions[i].Status != status.Conditions[i].Status {
			return true
		}
	}
	return false
}
