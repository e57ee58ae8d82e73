package handler

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
)

// endPoll is the pause between two looks at the processes of a pod that was removed.
const endPoll = time.Second

// mayRun reports whether a process of one of the VMI's pods is left on this node. The pods' objects may be gone: who
// deletes one with force does not end its QEMU. What cannot be looked at counts as running.
func (r *Reconciler) mayRun(vmi *v1.VirtualMachineInstance) bool {
	for pod, node := range vmi.Status.ActivePods {
		if node != r.Node.Name {
			continue
		}
		runs, err := podfs.Running(r.Node.ProcDir, pod)
		if err != nil {
			r.Node.Log.Warn("whether a removed pod's processes have ended is not known", "pod", pod, "err", err)
		}
		if runs || err != nil {
			return true
		}
	}
	return false
}

// release takes this node's pod out of the active ones of a VMI that was to come here, when the pod was removed after
// the guest began to move and no process of it is left. The VMI's end waits for that: the guest may have arrived.
func (r *Reconciler) release(ctx context.Context, vmi *v1.VirtualMachineInstance) (reconcile.Result, error) {
	if vmi.Status.MigrationState.StartTimestamp == nil {
		return reconcile.Result{}, nil
	}
	next := vmi.Status.DeepCopy()
	maps.DeleteFunc(next.ActivePods, func(_ types.UID, node string) bool { return node == r.Node.Name })
	if len(next.ActivePods) == len(vmi.Status.ActivePods) {
		return reconcile.Result{}, nil
	}
	// Nobody is given up because of a cache that lags behind.
	if pod, err := r.pod(ctx, r.Live, vmi); err != nil || pod != nil {
		return reconcile.Result{}, err
	}
	if r.mayRun(vmi) {
		return reconcile.Result{RequeueAfter: endPoll}, nil
	}
	return reconcile.Result{}, r.write(ctx, vmi, *next)
}
