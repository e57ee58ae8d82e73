package life

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// Component returns the pods of one of virtkit's components, of those in its namespace. A pod that has ended, an
// evicted one for example, or that is being deleted is none of them: its workload has another one in its place.
func Component(pods []corev1.Pod, name string) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range pods {
		if pod := &pods[i]; pod.Labels[v1.AppLabel] == name && PodStaying(pod) {
			out = append(out, pod)
		}
	}
	return out
}

// PodReady reports whether a component's pod stays and answers.
func PodReady(pod *corev1.Pod) bool {
	return PodStaying(pod) && conditions.True(pod.Status.Conditions, corev1.PodReady)
}

// PodFault returns what keeps a pod from running, as its containers or else the scheduler say it; empty for one that
// runs or that the kubelet is starting.
func PodFault(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Terminated != nil:
			return "its container ended: " + cmp.Or(c.State.Terminated.Reason, "no reason is known")
		case c.State.Waiting == nil:
		case c.State.Waiting.Reason == "", c.State.Waiting.Reason == "ContainerCreating",
			c.State.Waiting.Reason == "PodInitializing":
		default:
			return withMessage(c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	if c := conditions.With(pod.Status.Conditions, corev1.PodScheduled, corev1.ConditionFalse); c != nil {
		return withMessage(c.Reason, c.Message)
	}
	return ""
}

// PodTrouble returns why a pod is not ready, never empty.
func PodTrouble(pod *corev1.Pod) string {
	if fault := PodFault(pod); fault != "" {
		return fault
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			return withMessage(c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	if c := conditions.Find(pod.Status.Conditions, corev1.PodReady); c != nil && c.Message != "" {
		return c.Message
	}
	return "phase " + cmp.Or(string(pod.Status.Phase), "unknown")
}

func withMessage(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}
