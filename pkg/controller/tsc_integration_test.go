//go:build integration

package controller

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
)

// TestTimeStampCounter is a guest that is given the frequency of a node's time stamp counter, and another node that can
// show it.
func TestTimeStampCounter(tt *testing.T) {
	t := newTest(tt)
	label := func(name, frequency, scalable string) client.Object {
		node, err := cluster.CreateNode(t.ctx, name)
		t.must(err)
		before := node.DeepCopy()
		node.Labels[names.LabelTSCFrequency], node.Labels[names.LabelTSCScalable] = frequency, scalable
		t.must(cluster.Client.Patch(t.ctx, node, client.MergeFrom(before)))
		return node
	}
	offers := func(node client.Object, frequency string) {
		t.eventually(node.GetName()+" offers "+frequency, func() (bool, error) {
			err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(node), node)
			return node.GetLabels()[names.LabelTSCScheduling+frequency] == "true", err
		})
	}
	slow, fast := label("slow", "2000000000", "false"), label("fast", "3000000000", "true")
	offers(slow, "2000000000")
	offers(fast, "3000000000")
	vm := t.createVM(v1.RunStrategyHalted)
	stopped := vm.DeepCopy()
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	vm.Spec.Template.Spec.Domain.CPU = &v1.CPU{Features: []v1.CPUFeature{{Name: "invtsc", Policy: "require"}}}
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(stopped)))
	instance := t.waitVMI("has a frequency", func(instance *v1.VirtualMachineInstance) bool {
		return vmicontroller.GivenTSC(instance) == 2_000_000_000
	})
	offers(fast, "2000000000")
	if pod := t.waitPod(instance); pod.Spec.NodeSelector[names.LabelTSCScheduling+"2000000000"] != "true" {
		t.Errorf("the pod goes anywhere: %v", pod.Spec.NodeSelector)
	}
}
