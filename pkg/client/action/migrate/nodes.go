package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Misfits says why a node does not take a guest, as far as its spec and the node say so.
func Misfits(vmi *v1.VirtualMachineInstance, node *corev1.Node, added map[string]string) []string {
	out := []string{}
	if !life.TakesVMs(node) {
		out = append(out, "it takes no VMs: virt-handler does not run there, or has not said so (virtctl doctor)")
	}
	if c := conditions.Find(node.Status.Conditions, corev1.NodeReady); c != nil && c.Status != corev1.ConditionTrue {
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
		for _, key := range keys(selector) {
			if node.Labels[key] != selector[key] {
				out = append(out, fmt.Sprintf("it has not the label %s=%s", key, selector[key]))
			}
		}
	}
	if !allowed(vmi.Spec.Affinity, node) {
		out = append(out, "the VM's node affinity excludes it")
	}
	return out
}

func keys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return t.Key != "" && t.Value == taint.Value
	}
	return false
}

// allowed reports whether a required node affinity has a term that a node meets.
func allowed(affinity *corev1.Affinity, node *corev1.Node) bool {
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
		if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
			return false // as the scheduler has it
		}
		for _, r := range t.MatchExpressions {
			value, ok := node.Labels[r.Key]
			if !meets(r, value, ok) {
				return false
			}
		}
		for _, r := range t.MatchFields {
			if !meets(r, node.Name, r.Key == "metadata.name") {
				return false
			}
		}
		return true
	})
}

func meets(r corev1.NodeSelectorRequirement, value string, ok bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return ok && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !ok || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return ok
	case corev1.NodeSelectorOpDoesNotExist:
		return !ok
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		is, err := strconv.ParseInt(value, 10, 64)
		bound, failed := strconv.ParseInt(strings.Join(r.Values, ","), 10, 64)
		if !ok || err != nil || failed != nil {
			return false
		}
		return r.Operator == corev1.NodeSelectorOpGt && is > bound ||
			r.Operator == corev1.NodeSelectorOpLt && is < bound
	}
	return false
}
