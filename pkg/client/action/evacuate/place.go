package evacuate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// capacity is a node and what is left of it.
type capacity struct {
	node *corev1.Node
	// free is what its pods have not asked for.
	free map[corev1.ResourceName]resource.Quantity
}

// newCapacities counts what the pods of each node have asked for.
func newCapacities(nodes []corev1.Node, pods []corev1.Pod) []*capacity {
	var out []*capacity
	byName := map[string]*capacity{}
	for i := range nodes {
		r := &capacity{node: &nodes[i], free: map[corev1.ResourceName]resource.Quantity{}}
		for name, quantity := range nodes[i].Status.Allocatable {
			r.free[name] = quantity.DeepCopy()
		}
		byName[nodes[i].Name] = r
		out = append(out, r)
	}
	for i := range pods {
		if r := byName[pods[i].Spec.NodeName]; r != nil && !life.PodEnded(&pods[i]) {
			r.take(requests(&pods[i]))
		}
	}
	slices.SortFunc(out, func(a, b *capacity) int {
		if a.node.Name < b.node.Name {
			return -1
		}
		return 1
	})
	return out
}

func (r *capacity) take(asked map[corev1.ResourceName]resource.Quantity) {
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
func place(g *Guest, pod *corev1.Pod, from string, capacities []*capacity) {
	asked := requests(pod)
	var best *capacity
	for _, r := range capacities {
		if r.node.Name == from {
			continue
		}
		if reason := r.refuses(g.vmi, pod, asked); reason != "" {
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

// refuses says why a guest's pod could not go to a node; empty when nothing is known to speak against it. Affinity to
// other pods and the spread over zones are the scheduler's to judge.
func (r *capacity) refuses(
	vmi *v1.VirtualMachineInstance, pod *corev1.Pod, asked map[corev1.ResourceName]resource.Quantity,
) string {
	// The pod's selector has what the cluster adds to every VM's.
	if misfits := migrate.Misfits(vmi, r.node, pod.Spec.NodeSelector); len(misfits) > 0 {
		return misfits[0]
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if want, free := asked[name], r.free[name]; free.Cmp(want) < 0 && !want.IsZero() {
			return fmt.Sprintf("it has %s of %s left, and the VM's pod asks for %s", free.String(), name, want.String())
		}
	}
	return ""
}
