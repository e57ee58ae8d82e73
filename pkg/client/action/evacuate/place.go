package evacuate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// capacity is a node and what is left of it.
type capacity struct {
	node *corev1.Node
	// free is what its pods have not asked for.
	free corev1.ResourceList
}

// newCapacities counts what the pods of each node have asked for.
func newCapacities(nodes []corev1.Node, pods []corev1.Pod) []*capacity {
	var out []*capacity
	byName := map[string]*capacity{}
	for i := range nodes {
		r := &capacity{node: &nodes[i], free: corev1.ResourceList{}}
		for name, quantity := range nodes[i].Status.Allocatable {
			r.free[name] = quantity.DeepCopy()
		}
		byName[nodes[i].Name] = r
		out = append(out, r)
	}
	for i := range pods {
		if r := byName[pods[i].Spec.NodeName]; r != nil && !life.PodEnded(&pods[i]) {
			r.take(reserved(&pods[i]))
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

func (r *capacity) take(asked corev1.ResourceList) {
	for name, quantity := range asked {
		left := r.free[name]
		left.Sub(quantity)
		r.free[name] = left
	}
}

// requests returns what a new pod of this spec asks for, its own place included.
func requests(pod *corev1.Pod) corev1.ResourceList {
	return withPlace(podresource.PodRequests(pod, podresource.PodResourcesOptions{}))
}

// reserved returns what the scheduler counts for a pod on a node. While a pod is resized it is the greater of what it
// has and what it asks for.
func reserved(pod *corev1.Pod) corev1.ResourceList {
	return withPlace(podresource.PodRequests(pod, podresource.PodResourcesOptions{UseStatusResources: true}))
}

func withPlace(asked corev1.ResourceList) corev1.ResourceList {
	asked[corev1.ResourcePods] = resource.MustParse("1")
	return asked
}

// place puts a guest on the node with the most memory left of those that would take its pod. The pod to which a guest
// moves asks for what the one that it is in does.
func place(g *Guest, pod *corev1.Pod, from string, capacities []*capacity, bound []volume) {
	asked := requests(pod)
	var best *capacity
	for _, r := range capacities {
		if r.node.Name == from {
			continue
		}
		if reason := r.refuses(g.vmi, pod, asked, bound); reason != "" {
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

// volume is a PersistentVolume that only some nodes can use.
type volume struct {
	claim string
	nodes *corev1.NodeSelector
}

// bound returns the volumes that a guest needs on its next node, and that only some can use. Disks that are copied to
// new claims stay behind.
func (f *Facts) bound(g *Guest, pod *corev1.Pod) (out []volume) {
	if g.WithDisks {
		return nil
	}
	for _, claim := range claimsOf(g.vmi, pod) {
		if nodes := f.Volumes[g.Namespace+"/"+claim]; nodes != nil {
			out = append(out, volume{claim, nodes})
		}
	}
	return out
}

// claimsOf returns the claims of a guest: those of its pod, and those that were plugged in.
func claimsOf(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) (out []string) {
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			out = append(out, claim.ClaimName)
		}
	}
	for i := range vmi.Spec.Volumes {
		if claim := claims.Name(&vmi.Spec.Volumes[i]); claim != "" {
			out = append(out, claim)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func less(a, b resource.Quantity) bool { return a.Cmp(b) < 0 }

// refuses returns why a guest's pod could not go to a node; empty when nothing is known to speak against it. Affinity
// to other pods and the spread over zones are the scheduler's to judge.
func (r *capacity) refuses(
	vmi *v1.VirtualMachineInstance, pod *corev1.Pod, asked corev1.ResourceList, bound []volume,
) string {
	// The pod's selector has what the cluster adds to every VM's.
	if misfits := migrate.Misfits(vmi, r.node, pod.Spec.NodeSelector); len(misfits) > 0 {
		return misfits[0]
	}
	for _, v := range bound {
		switch usable, err := nodeaffinity.NewLazyErrorNodeSelector(v.nodes).Match(r.node); {
		case err != nil:
			return fmt.Sprintf("the nodes of the volume of claim %s cannot be read: %v", v.claim, err)
		case !usable:
			return fmt.Sprintf("the volume of claim %s cannot be used there", v.claim)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if want, free := asked[name], r.free[name]; free.Cmp(want) < 0 && !want.IsZero() {
			return fmt.Sprintf("it has %s of %s left, and the VM's pod asks for %s", free.String(), name, want.String())
		}
	}
	return ""
}
