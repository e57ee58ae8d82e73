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

// TaintCommand returns the command that says it, and UntaintCommand the one that takes it back.
func TaintCommand(node string) string {
	return "kubectl taint node " + node + " " + corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"
}

// UntaintCommand returns the command for a node that is back.
func UntaintCommand(node string) string {
	return "kubectl taint node " + node + " " + corev1.TaintNodeOutOfService + "-"
}
