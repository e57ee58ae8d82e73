package evacuate

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// room is a node and what is left of it.
type room struct {
	node *corev1.Node
	// free is what its pods have not asked for.
	free map[corev1.ResourceName]resource.Quantity
}

// newRooms counts what the pods of each node have asked for.
func newRooms(nodes []corev1.Node, pods []corev1.Pod) []*room {
	var out []*room
	byName := map[string]*room{}
	for i := range nodes {
		r := &room{node: &nodes[i], free: map[corev1.ResourceName]resource.Quantity{}}
		for name, quantity := range nodes[i].Status.Allocatable {
			r.free[name] = quantity.DeepCopy()
		}
		byName[nodes[i].Name] = r
		out = append(out, r)
	}
	for i := range pods {
		phase := pods[i].Status.Phase
		if r := byName[pods[i].Spec.NodeName]; r != nil && phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			r.take(requests(&pods[i]))
		}
	}
	slices.SortFunc(out, func(a, b *room) int {
		if a.node.Name < b.node.Name {
			return -1
		}
		return 1
	})
	return out
}

func (r *room) take(asked map[corev1.ResourceName]resource.Quantity) {
	for name, quantity := range asked {
		left := r.free[name]
		left.Sub(quantity)
		r.free[name] = left
	}
}

// requests is what a pod asks for: the sum of its containers, or what its greatest init container wants, and its own
// place.
func requests(pod *corev1.Pod) map[corev1.ResourceName]resource.Quantity {
	out := map[corev1.ResourceName]resource.Quantity{corev1.ResourcePods: resource.MustParse("1")}
	for i := range pod.Spec.Containers {
		for name, quantity := range pod.Spec.Containers[i].Resources.Requests {
			sum := out[name]
			sum.Add(quantity)
			out[name] = sum
		}
	}
	for i := range pod.Spec.InitContainers {
		for name, quantity := range pod.Spec.InitContainers[i].Resources.Requests {
			if sum := out[name]; sum.Cmp(quantity) < 0 {
				out[name] = quantity
			}
		}
	}
	for name, quantity := range pod.Spec.Overhead {
		sum := out[name]
		sum.Add(quantity)
		out[name] = sum
	}
	return out
}

// place puts a guest on the node with the most memory left of those that would take its pod. The pod to which a guest
// moves asks for what the one that it is in does.
func place(g *Guest, pod *corev1.Pod, from string, rooms []*room) {
	asked := requests(pod)
	var best *room
	for _, r := range rooms {
		if r.node.Name == from {
			continue
		}
		if reason := r.refuses(pod, asked); reason != "" {
			g.Refusals = append(g.Refusals, Refusal{Node: r.node.Name, Reason: reason})
			continue
		}
		g.Candidates = append(g.Candidates, r.node.Name)
		if best == nil || less(best.free[corev1.ResourceMemory], r.free[corev1.ResourceMemory]) {
			best = r
		}
	}
	if best != nil {
		g.Target = best.node.Name
		best.take(asked)
	}
}

func less(a, b resource.Quantity) bool { return a.Cmp(b) < 0 }

// refuses says why a pod could not go to a node; empty when nothing is known to speak against it. Affinity to other pods
// and the spread over zones are the scheduler's to judge.
func (r *room) refuses(pod *corev1.Pod, asked map[corev1.ResourceName]resource.Quantity) string {
	node := r.node
	switch {
	case node.Spec.Unschedulable:
		return "it is cordoned"
	case !ready(node):
		return "it is not ready"
	case node.Labels[v1.NodeSchedulable] != "true":
		return "no virt-handler offers it for VMs"
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(pod, taint) {
			return fmt.Sprintf("it has the taint %s, which the VM does not tolerate", taint.ToString())
		}
	}
	for key, value := range pod.Spec.NodeSelector {
		if got, ok := node.Labels[key]; !ok || got != value {
			return fmt.Sprintf("it lacks the label %s=%s of the VM's nodeSelector", key, value)
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if !slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool { return matches(term, node) }) {
			return "the VM's nodeAffinity excludes it"
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU, corev1.ResourcePods} {
		if want, free := asked[name], r.free[name]; free.Cmp(want) < 0 {
			return fmt.Sprintf("it has %s of %s left, and the VM's pod asks for %s", free.String(), name, want.String())
		}
	}
	for name, want := range asked {
		if free := r.free[name]; free.Cmp(want) < 0 && !want.IsZero() {
			return fmt.Sprintf("it has %s of %s left, and the VM's pod asks for %s", free.String(), name, want.String())
		}
	}
	return ""
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// tolerated is Kubernetes' rule.
func tolerated(pod *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		return t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == taint.Value
	})
}

// matches is Kubernetes' rule for a term of a node affinity; an empty one matches nothing.
func matches(term corev1.NodeSelectorTerm, node *corev1.Node) bool {
	if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
		return false
	}
	for _, e := range term.MatchExpressions {
		value, has := node.Labels[e.Key]
		if !holds(e, value, has) {
			return false
		}
	}
	for _, e := range term.MatchFields {
		if e.Key != "metadata.name" || !holds(e, node.Name, true) {
			return false
		}
	}
	return true
}

func holds(e corev1.NodeSelectorRequirement, value string, has bool) bool {
	switch e.Operator {
	case corev1.NodeSelectorOpIn:
		return has && slices.Contains(e.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !has || !slices.Contains(e.Values, value)
	case corev1.NodeSelectorOpExists:
		return has
	case corev1.NodeSelectorOpDoesNotExist:
		return !has
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if !has || len(e.Values) != 1 {
			return false
		}
		got, err := strconv.ParseInt(value, 10, 64)
		limit, lerr := strconv.ParseInt(e.Values[0], 10, 64)
		if err != nil || lerr != nil {
			return false
		}
		return e.Operator == corev1.NodeSelectorOpGt && got > limit || e.Operator == corev1.NodeSelectorOpLt && got < limit
	}
	return false
}
