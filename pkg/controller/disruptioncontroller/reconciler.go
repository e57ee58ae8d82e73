package disruptioncontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/eviction"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Reasons of events on a VMI; KubeVirt's words.
const (
	ReasonSuccessfulCreate = "SuccessfulCreate"
	ReasonSuccessfulDelete = "SuccessfulDelete"
	ReasonFailedCreate     = "FailedCreate"
)

// settle is the time that the configuration may need to follow a change of the KubeVirt resource.
const settle = time.Second

// Reconciler reads VMIs, pods and budgets from Client's cache, and writes budgets.
type Reconciler struct {
	Client   client.Client
	Recorder record.EventRecorder
	Config   func() config.Config

	writes *frame.Writes
}

// budgetsByVMI indexes budgets by the UID of the VMI that controls them.
const budgetsByVMI = "virtkit.vmi"

// SetupWithManager registers the reconciler and its index; the VMI reconciler's indexes are expected.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	err := frame.Index[client.Object](ctx, mgr.GetFieldIndexer(), &policyv1.PodDisruptionBudget{}, budgetsByVMI,
		"PodDisruptionBudgets by VMI", vmicontroller.ByVMI)
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("disruptionbudget").
		For(&v1.VirtualMachineInstance{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		Owns(&corev1.Pod{}).
		// The strategy of those that name none may be another now.
		Watches(&v1.KubeVirt{}, handler.Funcs{
			UpdateFunc: r.all,
		}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(&frame.Frame[*v1.VirtualMachineInstance, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
}

func (r *Reconciler) all(
	ctx context.Context, _ event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	var vmis v1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMIs")
		return
	}
	inherits := func(vmi *v1.VirtualMachineInstance) bool { return vmi.Spec.EvictionStrategy == nil }
	for _, request := range frame.Requests(vmis.Items, inherits) {
		queue.AddAfter(request, settle)
	}
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, instance *v1.VirtualMachineInstance) (View, error) {
	if !eviction.Alive(instance) {
		return View{}, frame.ErrNothing
	}
	view := View{VMI: instance, Strategy: eviction.Strategy(instance, r.Config().EvictionStrategy)}
	var budget policyv1.PodDisruptionBudget
	key := types.NamespacedName{Namespace: instance.Namespace, Name: Name(instance)}
	switch err := r.Client.Get(ctx, key, &budget); {
	case err == nil && (r.writes.Stale(&budget) || r.writes.Deleted(&budget)):
		return view, frame.ErrStale
	case err == nil:
		view.Budget = &budget
	case !apierrors.IsNotFound(err):
		return view, fmt.Errorf("get PodDisruptionBudget: %w", err)
	}
	var all policyv1.PodDisruptionBudgetList
	err := r.Client.List(ctx, &all, client.InNamespace(instance.Namespace),
		client.MatchingFields{budgetsByVMI: string(instance.UID)})
	if err != nil {
		return view, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	for i := range all.Items {
		if other := &all.Items[i]; other.Name != key.Name && other.DeletionTimestamp == nil {
			view.Others = append(view.Others, other)
		}
	}
	if eviction.Protected(instance, view.Strategy) {
		pods, err := vmicontroller.Pods(ctx, r.Client, instance)
		if err != nil {
			return view, err
		}
		for _, pod := range pods {
			if life.PodStaying(pod) {
				view.Pods++
			}
		}
	}
	return view, nil
}

func (r *Reconciler) delete(
	ctx context.Context, vmi *v1.VirtualMachineInstance, b *policyv1.PodDisruptionBudget,
) error {
	deleted, err := r.writes.Delete(ctx, b)
	if err != nil {
		return fmt.Errorf("delete PodDisruptionBudget %s: %w", b.Name, err)
	}
	if deleted {
		r.Recorder.Eventf(vmi, corev1.EventTypeNormal, ReasonSuccessfulDelete, "Deleted PodDisruptionBudget %s", b.Name)
	}
	return nil
}

func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	for _, other := range step.Others {
		if err := r.delete(ctx, view.VMI, other); err != nil {
			return err
		}
	}
	switch {
	case step.Delete:
		return r.delete(ctx, view.VMI, view.Budget)
	case step.Create != nil:
		switch err := r.writes.Create(ctx, step.Create); {
		case err == nil:
			r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, ReasonSuccessfulCreate,
				"Created PodDisruptionBudget %s", step.Create.Name)
		case !apierrors.IsAlreadyExists(err) && !frame.Ending(err):
			r.Recorder.Eventf(view.VMI, corev1.EventTypeWarning, ReasonFailedCreate,
				"Error creating a PodDisruptionBudget: %v", err)
			return fmt.Errorf("create PodDisruptionBudget: %w", err)
		}
	case step.MinAvailable != nil:
		err := r.writes.Change(ctx, view.Budget, func() { view.Budget.Spec.MinAvailable = step.MinAvailable })
		if err != nil {
			return fmt.Errorf("write PodDisruptionBudget %s: %w", view.Budget.Name, err)
		}
	}
	return step.Failed
}
