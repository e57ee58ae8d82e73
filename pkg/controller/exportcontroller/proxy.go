package exportcontroller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
)

// proxyReplicas is how many pods virt-exportproxy has while something leads to it.
const proxyReplicas = 2

// Proxy reads the Deployment of virt-exportproxy and what leads to it, and writes how many pods it has: none while
// nothing leads there, so that a cluster without an Ingress for exports has no pod for them either. A number that
// somebody has chosen stays.
type Proxy struct {
	Client    client.Client
	Entrances Entrances

	writes *frame.Writes
}

// ProxyView is the input of ProxyNext.
type ProxyView struct {
	Deployment *appsv1.Deployment
	// Host is where something leads to it, empty for nowhere.
	Host string
}

// ProxyStep holds what to write; the zero step writes nothing.
type ProxyStep struct {
	// Replicas is the number of pods to have.
	Replicas *int32
	frame.Requeue
}

// ProxyNext decides.
func ProxyNext(v ProxyView) ProxyStep {
	has := int32(1)
	if v.Deployment.Spec.Replicas != nil {
		has = *v.Deployment.Spec.Replicas
	}
	switch {
	case v.Deployment.DeletionTimestamp != nil:
		return ProxyStep{}
	case v.Host != "" && has == 0:
		return ProxyStep{Replicas: new(int32(proxyReplicas))}
	case v.Host == "" && has != 0:
		return ProxyStep{Replicas: new(int32)}
	}
	return ProxyStep{}
}

// SetupWithManager registers the reconciler.
func (p *Proxy) SetupWithManager(mgr ctrl.Manager) error {
	p.writes = frame.NewWrites(p.Client)
	proxy := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{
			NamespacedName: types.NamespacedName{Namespace: names.Namespace, Name: names.VirtExportProxy},
		}}
	}
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("exportproxy").
		For(&appsv1.Deployment{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetName() == names.VirtExportProxy
		}))).
		Watches(&networkingv1.Ingress{}, handler.EnqueueRequestsFromMapFunc(proxy)).
		Build(&frame.Frame[*appsv1.Deployment, ProxyView, ProxyStep]{
			Writes: p.writes, Look: p.look, Next: ProxyNext, Apply: p.apply,
		})
	if err != nil {
		return err
	}
	p.Entrances.Follow(built, proxy)
	return nil
}

func (p *Proxy) look(ctx context.Context, deployment *appsv1.Deployment) (ProxyView, error) {
	host, err := p.Entrances.Host(ctx)
	return ProxyView{Deployment: deployment, Host: host}, err
}

func (p *Proxy) apply(ctx context.Context, view ProxyView, step *ProxyStep) error {
	if step.Replicas == nil {
		return nil
	}
	err := p.writes.Change(ctx, view.Deployment, func() { view.Deployment.Spec.Replicas = step.Replicas })
	if err != nil {
		return fmt.Errorf("set the replicas of Deployment %s: %w", view.Deployment.Name, err)
	}
	return nil
}
