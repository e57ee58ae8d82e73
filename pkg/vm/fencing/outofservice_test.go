package fencing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNode(t *testing.T) {
	node := func(ready corev1.ConditionStatus, taints ...string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionUnknown}, {Type: corev1.NodeReady, Status: ready},
		}}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
		}
		return n
	}
	for name, test := range map[string]struct {
		node           *corev1.Node
		fenced, silent bool
	}{
		"answers": {node: node(corev1.ConditionTrue)},
		"silent":  {node: node(corev1.ConditionUnknown, corev1.TaintNodeUnreachable), silent: true},
		"silent, out of service": {
			node(corev1.ConditionUnknown, corev1.TaintNodeUnreachable, corev1.TaintNodeOutOfService), true, true,
		},
		"not ready":                 {node: node(corev1.ConditionFalse)},
		"not ready, out of service": {node: node(corev1.ConditionFalse, corev1.TaintNodeOutOfService), fenced: true},
		"out of service by mistake": {node: node(corev1.ConditionTrue, corev1.TaintNodeOutOfService)},
		"new":                       {node: &corev1.Node{}},
	} {
		fenced, silent := Fenced(test.node), Silent(test.node) != nil
		if fenced != test.fenced || silent != test.silent {
			t.Errorf("%s: fenced %v, silent %v", name, fenced, silent)
		}
	}
	if Fenced(nil) {
		t.Error("a node that is gone is fenced")
	}
}
