package life

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// NodeNotReady returns the condition that says that a node's kubelet does not run pods, or does not answer; nil for a
// node that is ready, or of which nobody has said.
func NodeNotReady(node *corev1.Node) *corev1.NodeCondition {
	c := conditions.Find(node.Status.Conditions, corev1.NodeReady)
	if c == nil || c.Status == corev1.ConditionTrue {
		return nil
	}
	return c
}

// NodePressures returns of what a node has too little, so that its kubelet may evict VMs.
func NodePressures(node *corev1.Node) []corev1.NodeConditionType {
	var out []corev1.NodeConditionType
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	} {
		if conditions.True(node.Status.Conditions, kind) {
			out = append(out, kind)
		}
	}
	return out
}

// TakesVMs reports whether virt-handler says that guests can run on a node. A cordoned node keeps those that it has.
func TakesVMs(node *corev1.Node) bool { return node.Labels[v1.NodeSchedulable] == "true" }

// TakesNewVMs reports whether a node takes VMs and is not cordoned.
func TakesNewVMs(node *corev1.Node) bool { return TakesVMs(node) && !node.Spec.Unschedulable }
