package nodecontroller

import (
	"context"
	"errors"
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

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
)

// VMIsByNode is the cache's index of VMIs by the node that they are on.
const VMIsByNode = "node-name"

// Reconciler reads nodes and VMIs from Client's cache, and writes phase Unknown and the nodes' labels.
type Reconciler struct {
	Client   client.Client
	Recorder record.EventRecorder
	// Timeout is the time without a heartbeat after which virt-handler counts as lost.
	Timeout time.Duration
	Now     func() time.Time

	writes *frame.Writes
}

// SetupWithManager registers the reconciler and its index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	err := frame.Index(ctx, mgr.GetFieldIndexer(), &v1.VirtualMachineInstance{}, VMIsByNode, "VMIs by node",
		func(vmi *v1.VirtualMachineInstance) []string { return []string{vmi.Status.NodeName} })
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}).
		// A VMI may be assigned to a node that was lost meanwhile.
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(nodeOf),
			builder.WithPredicates(moved)).
		Watches(&v1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(given)).
		Complete(&frame.Frame[*corev1.Node, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
			// A node that is gone is lost.
			Gone: func(ctx context.Context, key types.NamespacedName) error {
				view := View{Timeout: r.Timeout, Now: r.Now()}
				if err := r.lookAtVMIs(ctx, key.Name, &view); err != nil {
					return err
				}
				step := Next(view)
				return r.apply(ctx, view, &step)
			},
		})
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
		return e.ObjectOld.(*v1.VirtualMachineInstance).Status.NodeName !=
			e.ObjectNew.(*v1.VirtualMachineInstance).Status.NodeName
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// look gathers what Next wants to know.
func (r *Reconciler) look(ctx context.Context, node *corev1.Node) (View, error) {
	view := View{Node: node, Timeout: r.Timeout, Now: r.Now()}
	var err error
	if view.Used, err = vmicontroller.UsedTSC(ctx, r.Client); err != nil {
		return view, err
	}
	return view, r.lookAtVMIs(ctx, node.Name, &view)
}

func (r *Reconciler) lookAtVMIs(ctx context.Context, name string, view *View) error {
	// Not copied, since few are changed.
	var vmis v1.VirtualMachineInstanceList
	err := r.Client.List(ctx, &vmis, client.MatchingFields{VMIsByNode: name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list VMIs on node %s: %w", name, err)
	}
	for i := range vmis.Items {
		if instance := &vmis.Items[i]; !r.writes.Stale(instance) { // else it was marked already
			view.VMIs = append(view.VMIs, instance)
		}
	}
	return nil
}

// apply does all of what the step says that can be done.
func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	var errs []error
	if len(step.Frequencies) > 0 {
		errs = append(errs, r.offer(ctx, view.Node, step.Frequencies))
	}
	if step.Unschedulable {
		errs = append(errs, r.unschedulable(ctx, view.Node, step.Reason))
	}
	for _, lost := range step.Lose {
		errs = append(errs, r.lose(ctx, lost, step.Reason))
	}
	return errors.Join(errs...)
}

// unschedulable keeps new VMs off the node until virt-handler says otherwise.
func (r *Reconciler) unschedulable(ctx context.Context, node *corev1.Node, reason string) error {
	err := r.writes.Change(ctx, node, func() { metav1.SetMetaDataLabel(&node.ObjectMeta, v1.NodeSchedulable, "false") })
	if err != nil {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	r.Recorder.Event(node, corev1.EventTypeWarning, vmicontroller.ReasonNodeUnresponsive, reason)
	return nil
}

// lose marks a VMI whose phase nobody knows now.
func (r *Reconciler) lose(ctx context.Context, lost Lost, reason string) error {
	instance := lost.VMI.DeepCopy()
	if err := frame.PatchStatus(ctx, r.writes, instance, &instance.Status, lost.Status); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("mark VMI %s/%s: %w", instance.Namespace, instance.Name, err)
	}
	r.Recorder.Eventf(instance, corev1.EventTypeWarning, vmicontroller.ReasonNodeUnresponsive, "node %s: %s",
		instance.Status.NodeName, reason)
	return nil
}
