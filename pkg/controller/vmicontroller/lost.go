package vmicontroller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// fencedAgain is the delay before the next look at a pod that Kubernetes deletes on a node that does not answer: the
// fencing of the node may not have been seen yet.
const fencedAgain = 2 * time.Second

// tolerations returns the tolerations of a VMI, and one that keeps its pod on a node which cannot be reached.
// Kubernetes would delete the pod after five minutes; that could not end the guest there, nor start it elsewhere, but
// would shut it down when the node is back. A VMI with a toleration of unreachable nodes of its own keeps that one.
func tolerations(own []corev1.Toleration) []corev1.Toleration {
	out := copyAll(own)
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	if slices.ContainsFunc(own, func(t corev1.Toleration) bool {
		return (t.Key == "" || t.Key == unreachable.Key) && (t.Effect == "" || t.Effect == unreachable.Effect)
	}) {
		return out
	}
	return append(out,
		corev1.Toleration{Key: unreachable.Key, Operator: corev1.TolerationOpExists, Effect: unreachable.Effect})
}

// watchOver keeps the node label, and ends a VMI whose pod is over when virt-handler does not.
func (s *Step) watchOver(view View) {
	s.NodeLabel = view.VMI.Status.NodeName
	pods := own(view)
	if pod := podWithGuest(view.VMI, pods); pod != nil {
		if s.fenced(view, pod) {
			return
		}
		if life.GuestPod(view.VMI, view.Pods) != nil {
			s.gate(view)
			s.expand(view)
			s.plug(view)
			s.leave(view)
			s.prune(view)
			s.settleState(view)
		}
		return
	}
	s.Dead = true
	if wait := s.handlerMayReport(view, pods); wait > 0 {
		s.RequeueAfter = wait
		return
	}
	if s.keepLease(view) {
		return
	}
	reason, message := v1.PodNotExistsReason, "the launcher pod is gone"
	phase := v1.Failed
	if len(pods) > 0 {
		// A guest that has moved leaves the pods where it was before behind.
		last := slices.MaxFunc(pods,
			func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		reason, message = podOver(last)
		end := termination.Of(last)
		if ms := s.Status.MigrationState; ms != nil && last.Name == ms.TargetPod && end.StateSaved {
			vmstate.Settle(&s.Status)
		}
		if last.Status.Phase == corev1.PodSucceeded && end.Reason != names.ReasonTerminated &&
			end.Lifecycle != migrated {
			phase = v1.Succeeded
		}
	}
	if view.VMI.Status.Phase == v1.Unknown && phase == v1.Failed {
		reason, message = ReasonNodeUnresponsive, fmt.Sprintf("node %s was lost: %s", view.VMI.Status.NodeName, message)
	}
	s.finish(view, phase, reason, message)
}

// migrated is the last state that a launcher reports whose guest has gone to another one.
const migrated = launcherpb.Lifecycle_LIFECYCLE_MIGRATED

// podWithGuest returns a pod in which the guest may be: one on the VMI's node that is not over, or the target of a
// migration into which the guest has gone although nobody has said so yet. nil when there is none; that the target of a
// migration is well does not help a guest whose own pod is gone.
func podWithGuest(instance *v1.VirtualMachineInstance, pods []*corev1.Pod) *corev1.Pod {
	left := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return life.PodEnded(pod) && termination.Of(pod).Lifecycle == migrated
	})
	for _, pod := range pods {
		if !life.PodEnded(pod) && (left || pod.Spec.NodeName == instance.Status.NodeName) {
			return pod
		}
	}
	return nil
}

// fenced ends a VMI whose node is known not to run it any more. Its pod is still there; a VMI that takes its
// place waits until Kubernetes has removed it.
func (s *Step) fenced(view View, pod *corev1.Pod) bool {
	if view.VMI.Status.Phase != v1.Unknown || pod.Spec.NodeName != view.VMI.Status.NodeName {
		return false
	}
	switch {
	case fencing.Fenced(view.Node):
		s.finish(view, v1.Failed, ReasonNodeUnresponsive,
			fmt.Sprintf("node %s was lost, and is out of service", pod.Spec.NodeName))
		return true
	case expired(view, pod):
		s.finish(view, v1.Failed, ReasonNodeUnresponsive,
			fmt.Sprintf("node %s was lost, and the launcher there has ended the guest", pod.Spec.NodeName))
		return true
	case pod.DeletionTimestamp != nil:
		s.RequeueAfter = fencedAgain
	}
	s.awaitExpiry(view, pod)
	return false
}

// removeFenced removes the pods of a deleted VMI that wait for a node which is fenced, or whose launchers have ended
// themselves. The first Kubernetes does, too, but looks only every 20 seconds.
func (s *Step) removeFenced(view View) {
	for _, pod := range own(view) {
		switch {
		case pod.DeletionTimestamp == nil || view.Node == nil || pod.Spec.NodeName != view.Node.Name:
		case fencing.Fenced(view.Node) || expired(view, pod):
			s.RemovePods = append(s.RemovePods, pod)
		default:
			s.awaitExpiry(view, pod)
		}
	}
}

// lostNode reports whether what is to be done with a VMI depends on what became of its node.
func lostNode(instance *v1.VirtualMachineInstance) bool {
	return instance.Status.NodeName != "" &&
		(instance.Status.Phase == v1.Unknown || instance.Status.Reason == ReasonNodeUnresponsive)
}

// handlerMayReport returns how much longer virt-handler has to report the end of a guest whose pod is over. The
// virt-handler of a lost node does not; but the guest may have just moved away from there.
func (s *Step) handlerMayReport(view View, pods []*corev1.Pod) time.Duration {
	if view.VMI.Status.Phase == v1.Unknown && len(pods) == 0 && !migrations.UnderWay(view.VMI) {
		return 0
	}
	if view.DeadSince.IsZero() {
		return handlerGrace
	}
	return handlerGrace - view.Now.Sub(view.DeadSince)
}
