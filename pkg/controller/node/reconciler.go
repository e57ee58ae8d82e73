package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/controller/vmi"
)

// VMIsByNode is the cache's index of VMIs by the node that they are on.
const VMIsByNode = "node-name"

// catchUp is how long to wait for a cache that is behind; its event mostly comes first.
const catchUp = time.Second

// Reconciler reads nodes and VMIs from Client's cache, and writes phase Unknown and the nodes' labels.
type Reconciler struct {
	Client   client.Client
	Recorder record.EventRecorder
	// Timeout is how long virt-handler may be silent.
	Timeout time.Duration
	Now     func() time.Time
}

// SetupWithManager registers the reconciler and its index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1.VirtualMachineInstance{}, VMIsByNode, func(obj client.Object) []string {
		if node := obj.(*v1.VirtualMachineInstance).Status.NodeName; node != "" {
			return []string{node}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index VMIs by node: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}).
		// A VMI may be handed over to a node that was lost meanwhile.
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(nodeOf), builder.WithPredicates(moved)).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(given)).
		Complete(r)
}

func nodeOf(_ context.Context, obj client.Object) []reconcile.Request {
	if node := obj.(*v1.VirtualMachineInstance).Status.NodeName; node != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: node}}}
	}
	return nil
}

// moved lets a VMI through when it has come to a node.
var moved = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.(*v1.VirtualMachineInstance).Status.NodeName != e.ObjectNew.(*v1.VirtualMachineInstance).Status.NodeName
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// Reconcile judges one node.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	err := r.Client.Get(ctx, request.NamespacedName, node)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get node: %w", err)
	}
	if err != nil {
		node = nil
	}
	if node != nil {
		if err := r.offer(ctx, node); err != nil {
			return reconcile.Result{}, err
		}
	}
	health := examine(node, r.Timeout, r.Now())
	if health.silent && node.Labels[v1.NodeSchedulable] == "true" {
		switch err := r.unschedulable(ctx, node, health); {
		case apierrors.IsConflict(err):
			health.again = catchUp // others write a node's status just now, too
		case err != nil:
			return reconcile.Result{}, err
		}
	}
	if health.lost {
		if err := r.lose(ctx, request.Name, health); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: health.again}, nil
}

// unschedulable keeps new VMs off the node until virt-handler says otherwise.
func (r *Reconciler) unschedulable(ctx context.Context, node *corev1.Node, health health) error {
	before := node.DeepCopy()
	node.Labels[v1.NodeSchedulable] = "false"
	err := r.Client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	r.Recorder.Event(node, corev1.EventTypeWarning, vmi.ReasonNodeUnresponsive, health.reason)
	return nil
}

// lose marks the VMIs on the node whose phase nobody can tell now.
func (r *Reconciler) lose(ctx context.Context, name string, health health) error {
	var vmis v1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &vmis, client.MatchingFields{VMIsByNode: name}); err != nil {
		return fmt.Errorf("list VMIs on node %s: %w", name, err)
	}
	for i := range vmis.Items {
		instance := &vmis.Items[i]
		if instance.IsFinal() || instance.Status.Phase == v1.Unknown || !vmi.HandedOver(instance) {
			continue
		}
		before := instance.DeepCopy()
		markUnknown(&instance.Status, r.Now())
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Status().Patch(ctx, instance, patch); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return fmt.Errorf("mark VMI %s/%s: %w", instance.Namespace, instance.Name, err)
		}
		r.Recorder.Eventf(instance, corev1.EventTypeWarning, vmi.ReasonNodeUnresponsive, "node %s: %s", name, health.reason)
	}
	return nil
}

// maxTransitions bounds the phase transitions of a VMI whose node keeps coming and going; the first ones,
// which tell how it started, stay.
const (
	maxTransitions   = 32
	firstTransitions = 8
)

func recent(all []v1.VirtualMachineInstancePhaseTransitionTimestamp) []v1.VirtualMachineInstancePhaseTransitionTimestamp {
	if len(all) < maxTransitions {
		return all
	}
	return append(all[:firstTransitions:firstTransitions], all[len(all)-(maxTransitions-firstTransitions)+2:]...)
}

// markUnknown makes a status say that nothing is known; virt-handler sets all of this again.
func markUnknown(status *v1.VirtualMachineInstanceStatus, now time.Time) {
	status.Phase = v1.Unknown
	status.Reason = vmi.ReasonNodeUnresponsive
	status.PhaseTransitionTimestamps = append(recent(status.PhaseTransitionTimestamps),
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: v1.Unknown, PhaseTransitionTimestamp: metav1.NewTime(now)})
	if ready := vmi.Condition(status, v1.VirtualMachineInstanceReady); ready != nil && ready.Reason != vmi.ReasonNodeUnresponsive {
		if ready.Status != corev1.ConditionFalse {
			ready.LastTransitionTime = metav1.NewTime(now)
		}
		ready.Status = corev1.ConditionFalse
		ready.Reason = vmi.ReasonNodeUnresponsive
		ready.Message = "the node does not answer"
	}
}
