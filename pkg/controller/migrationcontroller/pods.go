package migrationcontroller

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// ended returns the state of a pod that does not stay.
func ended(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "it was deleted"
	}
	if pod.Status.Message != "" {
		return pod.Status.Message
	}
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil {
			return strings.TrimSpace(t.Reason + " " + t.Message)
		}
	}
	return string(pod.Status.Phase)
}

func unschedulable(pod *corev1.Pod) string {
	if c := conditions.With(pod.Status.Conditions, corev1.PodScheduled, corev1.ConditionFalse); c != nil {
		return c.Message
	}
	return "the scheduler has not looked at it"
}
