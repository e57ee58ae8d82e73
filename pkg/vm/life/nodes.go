package life

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// TakesVMs reports whether virt-handler says that guests can run on a node. A cordoned node keeps those that it has.
func TakesVMs(node *corev1.Node) bool { return node.Labels[v1.NodeSchedulable] == "true" }

// TakesNewVMs reports whether a node takes VMs and is not cordoned.
func TakesNewVMs(node *corev1.Node) bool { return TakesVMs(node) && !node.Spec.Unschedulable }
