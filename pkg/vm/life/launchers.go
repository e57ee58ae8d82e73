package life

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Recorded reports whether the pod is one of the VMI's launchers: whether virt-controller has recorded its UID in
// status.activePods. A pod's name, labels and owner say nothing, since they are anybody's to write who may make pods.
//
// virt-controller records a VMI's first pod as soon as it has a node, or waits for one for more than a second, and a
// migration's target as soon as it has a node. Only virt-controller knows before that which pod it has made.
func Recorded(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) bool {
	_, recorded := vmi.Status.ActivePods[pod.UID]
	return recorded
}

// HasGuest reports whether the guest is in the pod, as far as the VMI's status says, or may get there.
func HasGuest(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) bool {
	node := vmi.Status.ActivePods[pod.UID]
	return node != "" && node == pod.Spec.NodeName
}

// GuestIn reports whether the pod is the one that the guest is in, which may be about to end. A pod on another node
// may get the guest, by a migration, and does not have it.
func GuestIn(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) bool {
	return HasGuest(vmi, pod) && pod.Spec.NodeName == vmi.Status.NodeName
}

// GuestPod returns the pod of a VMI that has the guest and stays; nil when there is none.
func GuestPod(vmi *v1.VirtualMachineInstance, pods []*corev1.Pod) *corev1.Pod {
	i := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return GuestIn(vmi, pod) && PodStaying(pod) })
	if i < 0 {
		return nil
	}
	return pods[i]
}
