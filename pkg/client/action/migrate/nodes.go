package migrate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Misfits returns why a node does not take a guest, as far as its spec and the node say so.
func Misfits(vmi *v1.VirtualMachineInstance, node *corev1.Node, added map[string]string) []string {
	out := []string{}
	if !life.TakesVMs(node) {
		out = append(out, "it takes no VMs: virt-handler does not run there, or has not said so (virtctl doctor)")
	}
	if life.NodeNotReady(node) != nil {
		out = append(out, "it is not ready")
	}
	if node.Spec.Unschedulable {
		out = append(out, "it is cordoned")
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Key == corev1.TaintNodeUnschedulable || taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(vmi.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(&t, taint) }) {
			out = append(out, "the VM does not tolerate its taint "+taint.ToString())
		}
	}
	for _, selector := range []map[string]string{vmi.Spec.NodeSelector, added} {
		for _, key := range slices.Sorted(maps.Keys(selector)) {
			if node.Labels[key] != selector[key] {
				out = append(out, fmt.Sprintf("it has not the label %s=%s", key, selector[key]))
			}
		}
	}
	if reason := excluded(vmi.Spec.Affinity, node); reason != "" {
		out = append(out, reason)
	}
	return out
}

// tolerates reports whether a toleration is of a taint. The operators Lt and Gt count: where their feature gate is off,
// the API server refuses a pod that has them.
func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	return t.ToleratesTaint(klog.Logger{}, taint, true) // the zero logger drops what it gets
}

// excluded returns why a required node affinity does not allow a node; empty when it does, or there is none.
func excluded(affinity *corev1.Affinity, node *corev1.Node) string {
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	allowed, err := nodeaffinity.NewLazyErrorNodeSelector(required).Match(node)
	switch {
	case err != nil:
		return fmt.Sprintf("the VM's node affinity cannot be read: %v", err)
	case !allowed:
		return "the VM's node affinity excludes it"
	}
	return ""
}
