package kubevirtcontroller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
)

// Reconciler reads the KubeVirt resource, Deployments and DaemonSets of the installation's namespace
// from Client's cache, and writes the resource's status.
type Reconciler struct {
	Client  client.Client
	Config  func() config.Config
	Version string
	Now     func() time.Time

	writes  *frame.Writes
	written time.Time
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	one := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{
			{NamespacedName: types.NamespacedName{Namespace: names.Namespace, Name: names.KubeVirt}},
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("kubevirt").
		For(&v1.KubeVirt{}).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(one)).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(one)).
		Complete(&frame.Frame[*v1.KubeVirt, View, Step]{Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply})
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, kv *v1.KubeVirt) (View, error) {
	if kv.Namespace != names.Namespace || kv.Name != names.KubeVirt {
		return View{}, frame.ErrNothing // Only one counts; admission refuses others.
	}
	view := View{
		KubeVirt: kv, Version: r.Version, Architecture: r.Config().Architecture, Written: r.written, Now: r.Now(),
		Deployments: map[string]*appsv1.Deployment{}, DaemonSets: map[string]*appsv1.DaemonSet{},
	}
	var deployments appsv1.DeploymentList
	if err := r.Client.List(ctx, &deployments, client.InNamespace(names.Namespace)); err != nil {
		return View{}, fmt.Errorf("list deployments: %w", err)
	}
	for i := range deployments.Items {
		view.Deployments[deployments.Items[i].Name] = &deployments.Items[i]
	}
	var daemonSets appsv1.DaemonSetList
	if err := r.Client.List(ctx, &daemonSets, client.InNamespace(names.Namespace)); err != nil {
		return View{}, fmt.Errorf("list daemon sets: %w", err)
	}
	for i := range daemonSets.Items {
		view.DaemonSets[daemonSets.Items[i].Name] = &daemonSets.Items[i]
	}
	return view, nil
}

// apply writes the status.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	if step.Status == nil {
		return nil
	}
	if err := frame.PatchStatus(ctx, r.writes, view.KubeVirt, &view.KubeVirt.Status, *step.Status); err != nil {
		return err
	}
	r.written = view.Now
	return nil
}
