// Package guestfscontroller deletes what sessions of `virtctl guestfs` have left behind. Its input are the pods that
// virtctl has made with the rights of its user; its output is that those which have ended are gone, and
// those for which nobody waits any more. virtctl deletes the pod of a session itself. When it cannot, a pod that runs
// ends by itself, but is still there, and keeps the claim from being deleted; one that never ran would stay for ever.
package guestfscontroller

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// kept is how long a pod stays that has ended, or for which nobody waits: for virtctl to see how, and to delete it.
const kept = time.Minute

// View is the input of Next.
type View struct {
	Pod *corev1.Pod
	Now time.Time
}

// Step holds what to do; the zero Step does nothing.
type Step struct {
	Delete bool
	frame.Requeue
}

// Next decides.
func Next(view View) (step Step) {
	from, ever := unneeded(view.Pod)
	if !ever || view.Pod.DeletionTimestamp != nil {
		return step
	}
	if left := kept - view.Now.Sub(from); left > 0 {
		step.RequeueAfter = left
		return step
	}
	step.Delete = true
	return step
}

// unneeded returns from when on nobody needs a pod: its end, or that of the time for which its client waits for it to
// run. A pod that runs ends by itself.
func unneeded(pod *corev1.Pod) (from time.Time, ever bool) {
	if life.PodEnded(pod) {
		return ended(pod), true
	}
	if pod.Status.Phase != corev1.PodPending {
		return time.Time{}, false
	}
	wait, err := time.ParseDuration(pod.Annotations[names.AnnotationGuestfsWait])
	return pod.CreationTimestamp.Add(min(max(wait, 0), 24*time.Hour)), err == nil
}

// ended returns when a pod has ended; when it was made, where its containers do not say.
func ended(pod *corev1.Pod) (at time.Time) {
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	if at.IsZero() {
		return pod.CreationTimestamp.Time
	}
	return at
}
