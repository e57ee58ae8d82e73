package migrationcontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
)

// silence returns why a migration treats a node as lost, or "" while its kubelet answers. A nil node does not exist any
// more. virt-handler's heartbeat, by which nodecontroller spares the guests that a node has, does not count: a guest
// that stays where it is loses nothing, and the handoff may need what the target's kubelet says (docs/migration.md).
func silence(node *corev1.Node, name string) string {
	if node == nil {
		return "node " + name + " does not exist any more"
	}
	if fencing.Silent(node) != nil {
		return "node " + name + " does not answer"
	}
	return ""
}

// answers lets a node through when its kubelet falls silent, and one that is deleted.
var answers = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return true },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return silence(e.ObjectOld.(*corev1.Node), "") != silence(e.ObjectNew.(*corev1.Node), "")
	},
}

// towards returns the migrations to a node.
func (r *Reconciler) towards(ctx context.Context, node client.Object) []reconcile.Request {
	var all v1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &all); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list migrations")
		return nil
	}
	return frame.Requests(all.Items, func(m *v1.VirtualMachineInstanceMigration) bool {
		ms := m.Status.MigrationState
		return m.IsRunning() && ms != nil && ms.TargetNode == node.GetName()
	})
}

// lookAtTarget records in the view whether the node to which the guest moves is lost.
func (r *Reconciler) lookAtTarget(ctx context.Context, view *View) error {
	ms := state(*view)
	if ms == nil || ms.TargetNode == "" {
		return nil
	}
	var node corev1.Node
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: ms.TargetNode}, &node); {
	case err == nil:
		view.TargetLost = silence(&node, ms.TargetNode)
	case client.IgnoreNotFound(err) == nil:
		view.TargetLost = silence(nil, ms.TargetNode)
	default:
		return fmt.Errorf("get node %s: %w", ms.TargetNode, err)
	}
	return nil
}

// abort asks the guest's node to keep it. Only that node knows whether it still can.
func (s *Step) abort(view View) {
	if state(view).AbortRequested {
		return
	}
	s.VMIStatus = view.VMI.Status.DeepCopy()
	s.VMIStatus.MigrationState.AbortRequested = true
	s.VMIStatus.MigrationState.AbortStatus = v1.MigrationAbortInProgress
}
