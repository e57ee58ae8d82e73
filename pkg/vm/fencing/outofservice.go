package fencing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// OutOfService reports whether somebody who knows has said by the taint node.kubernetes.io/out-of-service that nothing
// runs on a node any more.
func OutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints,
		func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService })
}

// Fenced reports whether a node is out of service, and its kubelet does not say otherwise: its guests have ended.
// Kubernetes' pod garbage collector asks the same before it removes the pods of a node that cannot confirm their end. A
// nil node is not fenced.
func Fenced(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	ready := condition(node)
	return (ready == nil || ready.Status != corev1.ConditionTrue) && OutOfService(node)
}

// Silent returns the condition by which Kubernetes says that a node's kubelet does not answer; nil when it does not say
// so. virt-handler may answer all the same: whether the node's guests are looked after is for virt-controller's
// examination of nodes, which reads its heartbeat, too.
func Silent(node *corev1.Node) *corev1.NodeCondition {
	if ready := condition(node); ready != nil && ready.Status == corev1.ConditionUnknown {
		return ready
	}
	return nil
}

// condition returns whether a node is ready, nil when nobody has said so.
func condition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

// TaintCommand returns the command that says it, and UntaintCommand the one that takes it back.
func TaintCommand(node string) string {
	return "kubectl taint node " + node + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"
}

// UntaintCommand returns the command for a node that is back.
func UntaintCommand(node string) string {
	return "kubectl taint node " + node + " " + corev1.TaintNodeOutOfService + "-"
}
