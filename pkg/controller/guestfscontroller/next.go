// Package guestfscontroller deletes what sessions of `virtctl guestfs` have left behind. Its input are the pods that
// virtctl has made with the rights of its user; its output is that those which have ended are gone. virtctl deletes the
// pod of a session itself. When it cannot, the pod ends by itself, but is still there, and keeps the claim from being
// deleted.
package guestfscontroller

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// kept is how long a pod that has ended stays, for virtctl to see how.
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
	if !life.PodEnded(view.Pod) || view.Pod.DeletionTimestamp != nil {
		return step
	}
	if left := kept - view.Now.Sub(ended(view.Pod)); left > 0 {
		step.RequeueAfter = left
		return step
	}
	step.Delete = true
	return step
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
