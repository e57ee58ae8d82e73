package disruption

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	"github.com/virtkit/virtkit/pkg/config"
	"github.com/virtkit/virtkit/pkg/controller/vmi"
	"github.com/virtkit/virtkit/pkg/controller/written"
	"github.com/virtkit/virtkit/pkg/eviction"
)

// Reasons of events on a VMI; KubeVirt's words.
const (
	ReasonSuccessfulCreate = "SuccessfulCreate"
	ReasonSuccessfulDelete = "SuccessfulDelete"
	ReasonFailedCreate     = "FailedCreate"
)

const (
	// catchUp is how long to wait for a cache that is behind; its event mostly comes first.
	catchUp = 500 * time.Millisecond
	// settle is how long the configuration may take to be known after the KubeVirt resource has changed.
	settle = time.Second
)

// Reconciler reads VMIs, pods and budgets from Client's cache, and writes budgets.
type Reconciler struct {
	Client   client.Client
	Recorder record.EventRecorder
	Config   func() config.Config

	written written.Log
}

// SetupWithManager registers the reconciler; the VMI reconciler's indexes are expected.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("disruptionbudget").
		For(&v1.VirtualMachineInstance{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		Owns(&corev1.Pod{}).
		// The strategy of those that name none may be another now.
		Watches(&v1.KubeVirt{}, handler.Funcs{UpdateFunc: r.all}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

func (r *Reconciler) all(ctx context.Context, _ event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	var vmis v1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMIs")
		return
	}
	for i := range vmis.Items {
		if vmis.Items[i].Spec.EvictionStrategy == nil {
			queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&vmis.Items[i])}, settle)
		}
	}
}

// Reconcile looks after one VMI's budget.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var instance v1.VirtualMachineInstance
	if err := r.Client.Get(ctx, request.NamespacedName, &instance); err != nil || !eviction.Alive(&instance) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	view := View{VMI: &instance, Strategy: eviction.Strategy(&instance, r.Config().EvictionStrategy)}
	var budget policyv1.PodDisruptionBudget
	key := types.NamespacedName{Namespace: instance.Namespace, Name: Name(&instance)}
	switch err := r.Client.Get(ctx, key, &budget); {
	case err == nil && r.written.Behind(&budget):
		return reconcile.Result{RequeueAfter: catchUp}, nil
	case err == nil:
		view.Budget = &budget
	case !apierrors.IsNotFound(err):
		return reconcile.Result{}, fmt.Errorf("get PodDisruptionBudget: %w", err)
	}
	if eviction.Protected(&instance, view.Strategy) {
		var pods corev1.PodList
		err := r.Client.List(ctx, &pods, client.InNamespace(instance.Namespace), client.MatchingFields{vmi.PodsByVMI: string(instance.UID)})
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("list pods: %w", err)
		}
		for i := range pods.Items {
			if counts(&pods.Items[i]) {
				view.Pods++
			}
		}
	}
	err := r.apply(ctx, view, Next(view))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: catchUp}, nil
	}
	return reconcile.Result{}, err
}

func counts(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func (r *Reconciler) apply(ctx context.Context, view View, step Step) error {
	switch {
	case step.Delete:
		if err := r.Client.Delete(ctx, view.Budget, client.Preconditions{UID: &view.Budget.UID}); err != nil {
			return fmt.Errorf("delete PodDisruptionBudget %s: %w", view.Budget.Name, err)
		}
		r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, ReasonSuccessfulDelete, "Deleted PodDisruptionBudget %s", view.Budget.Name)
	case step.Want == nil:
	case view.Budget == nil:
		switch err := r.Client.Create(ctx, step.Want); {
		case err == nil:
			r.written.Note(step.Want)
			r.Recorder.Eventf(view.VMI, corev1.EventTypeNormal, ReasonSuccessfulCreate, "Created PodDisruptionBudget %s", step.Want.Name)
		case !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			r.Recorder.Eventf(view.VMI, corev1.EventTypeWarning, ReasonFailedCreate, "Error creating a PodDisruptionBudget: %v", err)
			return fmt.Errorf("create PodDisruptionBudget: %w", err)
		}
	case !metav1.IsControlledBy(view.Budget, view.VMI):
		return fmt.Errorf("PodDisruptionBudget %s exists already and is not this VMI's: delete it", view.Budget.Name)
	default:
		before := view.Budget.DeepCopy()
		view.Budget.Spec.MinAvailable = step.Want.Spec.MinAvailable
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, view.Budget, patch); err != nil {
			return fmt.Errorf("write PodDisruptionBudget %s: %w", view.Budget.Name, err)
		}
		r.written.Note(view.Budget)
	}
	return nil
}
