package handler

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/handler/status"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// handing says that a guest stands still here because the launcher that it moves to was told to start it and has not
// said yet that it runs.
func handing(guest *launcherpb.GuestState) bool {
	return guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_PAUSED && guest.GetReason() == names.ReasonHandoff
}

// awaitRunning looks what became of the launcher that such a guest moves to; the two launchers go on to ask each other.
// When the other one has ended, its last words say whether it ever ran the guest. If it did not, the guest goes on
// here; if it may have, it wrote to the disks, and an older memory must not meet them: the guest is lost.
func (r *Reconciler) awaitRunning(ctx context.Context, vmi *v1.VirtualMachineInstance, s *session, in status.Input) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: handoverPoll}
	ms := vmi.Status.MigrationState
	if ms == nil || ms.TargetPod == "" {
		return again, r.write(ctx, vmi, status.Next(in))
	}
	pod, err := r.activePod(ctx, vmi, ms.TargetPod)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case pod != nil && !ended(pod):
	case pod != nil && status.NeverRan(pod):
		s.log.Info("the migration's target has ended without having run the guest, which goes on here", "target", pod.Name)
		select {
		case s.taking <- false:
		default: // asked before
		}
	case pod == nil && slices.Contains(slices.Collect(maps.Values(vmi.Status.ActivePods)), ms.TargetNode):
		// It was removed, and whether it has ended is not known.
	default:
		in.Lost = fmt.Sprintf("The guest may have run in pod %s on node %s, which has ended.", ms.TargetPod, ms.TargetNode)
		return reconcile.Result{}, r.write(ctx, vmi, status.Next(in))
	}
	return again, r.write(ctx, vmi, status.Next(in))
}
