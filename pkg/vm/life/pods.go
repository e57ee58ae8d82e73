package life

import corev1 "k8s.io/api/core/v1"

// PodEnded reports a pod whose containers have all ended for good. One that is being deleted has not: its guest may be
// shutting down in it.
func PodEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// PodStaying reports a pod that has not ended and that nobody has begun to delete.
func PodStaying(pod *corev1.Pod) bool { return !PodEnded(pod) && pod.DeletionTimestamp == nil }
