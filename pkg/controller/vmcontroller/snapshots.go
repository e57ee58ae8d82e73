package vmcontroller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// A VM's status says of each of its volumes whether a snapshot would have it. It changes with the VM, its claims, and
// the classes of storage and of snapshots, which are watched.

const (
	// vmsByClaim has VMs by the claims of their volumes that a snapshot can have.
	vmsByClaim = "snapshotted-claim"
	// anyClaim is in that index for each VM that has one.
	anyClaim = "*"
)

// claimsOf returns a VM's keys in that index.
func claimsOf(vm *v1.VirtualMachine) []string {
	if vm.Spec.Template == nil {
		return nil
	}
	var out []string
	if snapshots.KeepsState(vm, nil) {
		out = append(out, anyClaim)
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		if claim := snapshots.Claim(&vm.Spec.Template.Spec.Volumes[i]); claim != "" {
			out = append(out, claim, anyClaim)
		}
	}
	return out
}

// vmsOfClaim returns the VMs that a claim belongs to: by a volume, or as their persistent state.
func (r *Reconciler) vmsOfClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	out := r.indexed(ctx, claim.GetName(), client.InNamespace(claim.GetNamespace()))
	if vm := claim.GetLabels()[vmstate.Prefix]; vm != "" {
		out = append(out, reconcile.Request{
			NamespacedName: client.ObjectKey{Namespace: claim.GetNamespace(), Name: vm},
		})
	}
	return out
}

// vmsWithClaims returns all VMs that have a claim.
func (r *Reconciler) vmsWithClaims(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.indexed(ctx, anyClaim)
}

func (r *Reconciler) indexed(ctx context.Context, key string, options ...client.ListOption) []reconcile.Request {
	var vms v1.VirtualMachineList
	options = append(options, client.MatchingFields{vmsByClaim: key}, client.UnsafeDisableDeepCopy)
	if err := r.Client.List(ctx, &vms, options...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VMs by claim", "claim", key)
		return nil
	}
	return frame.Requests(vms.Items, nil)
}

// claimClassChanged lets through what of a claim decides whether it can be snapshotted.
var claimClassChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.PersistentVolumeClaim), e.ObjectNew.(*corev1.PersistentVolumeClaim)
		return before.Status.Phase != after.Status.Phase || className(before) != className(after) ||
			claims.BindsAtOnce(before) != claims.BindsAtOnce(after) ||
			before.Labels[vmstate.Prefix] != after.Labels[vmstate.Prefix]
	},
}

func className(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// lookAtSnapshots finds out which of the VM's volumes can be snapshotted.
func (r *Reconciler) lookAtSnapshots(ctx context.Context, view *View) error {
	if view.VM.DeletionTimestamp != nil {
		return nil
	}
	settled, err := r.Storage.Settled(ctx)
	if err != nil {
		return err
	}
	if !settled {
		view.Unsettled = true
		return nil
	}
	facts, err := r.Storage.Facts(ctx, view.VM, view.VMI)
	if err != nil {
		return err
	}
	view.Snapshotted = snapshots.Statuses(snapshots.Volumes(view.VM, view.VMI, facts))
	return nil
}
