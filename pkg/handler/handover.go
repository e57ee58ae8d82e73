package handler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/handler/status"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const (
	// wordPatience is how long the launchers have to agree on a hand-over by themselves.
	wordPatience = time.Second
	// handoverPoll is the pause between two looks at the other node's pod, of which no event tells.
	handoverPoll = time.Second
)

// waits says that a guest has arrived and does not run yet.
func waits(guest *launcherpb.GuestState) bool {
	return guest.GetArrived() && guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_NONE
}

// takeOver has a guest started that has arrived, if the launcher it came from let it go and the word was lost on the
// way: that launcher's last words, which the API server has, say so.
func (r *Reconciler) takeOver(ctx context.Context, vmi *v1.VirtualMachineInstance, s *session) (reconcile.Result, error) {
	if left := wordPatience - r.Node.Now().Sub(s.observation().ArrivedAt); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	pod, err := r.activePod(ctx, vmi, vmi.Status.MigrationState.SourcePod)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod != nil && status.Moved(pod) {
		s.log.Info("the guest's old launcher has let it go", "old", pod.Name)
		select {
		case s.taking <- status.Paused(vmi):
		default: // asked before
		}
	}
	return reconcile.Result{RequeueAfter: handoverPoll}, nil
}

// awaitHandover waits until the other node has written that the guest is there. It will not when the pod there
// has ended, and then the guest is lost. A pod that was removed need not have ended: virt-controller knows when.
func (r *Reconciler) awaitHandover(ctx context.Context, vmi *v1.VirtualMachineInstance, in status.Input) (reconcile.Result, error) {
	ms := vmi.Status.MigrationState
	if ms == nil || ms.TargetPod == "" {
		return reconcile.Result{}, nil
	}
	pod, err := r.activePod(ctx, vmi, ms.TargetPod)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil || !ended(pod) {
		return reconcile.Result{RequeueAfter: handoverPoll}, nil
	}
	in.Lost = fmt.Sprintf("The guest had just moved to pod %s on node %s, which has ended.", ms.TargetPod, ms.TargetNode)
	return reconcile.Result{}, r.write(ctx, vmi, status.Next(in))
}

// activePod asks the API server for one of a VMI's launcher pods, on whichever node it is; nil when it is gone.
func (r *Reconciler) activePod(ctx context.Context, vmi *v1.VirtualMachineInstance, name string) (*corev1.Pod, error) {
	var list corev1.PodList
	err := r.Live.List(ctx, &list, client.InNamespace(vmi.Namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return nil, fmt.Errorf("get launcher pod %s: %w", name, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		// Names and labels are anybody's to use who may make a pod; the status is the controller's.
		if node, active := vmi.Status.ActivePods[pod.UID]; active && pod.Name == name && pod.Spec.NodeName == node {
			return pod, nil
		}
	}
	return nil, nil
}

// passArrivals has the launcher start a guest that has arrived.
func (s *session) passArrivals(ctx context.Context, client launcherpb.LauncherClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case paused := <-s.taking:
			if _, err := client.TakeOver(ctx, &launcherpb.TakeOverRequest{Paused: paused}); err != nil && ctx.Err() == nil {
				s.log.Warn("guest not taken over yet", "err", describe(err))
			}
		}
	}
}
