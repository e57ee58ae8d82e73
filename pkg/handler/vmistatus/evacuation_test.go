package vmistatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func requested(status v1.VirtualMachineInstanceStatus) *v1.VirtualMachineInstanceCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == v1.VirtualMachineInstanceEvictionRequested {
			return &status.Conditions[i]
		}
	}
	return nil
}

// A guest that is to leave its node says so until it has left, or need not leave any more.
func TestEvacuation(t *testing.T) {
	vmi := vmiOf(t, migratingVMI)
	in := Input{VMI: vmi, Pod: pod(), Guest: guest(nil), Plan: plan(), Now: now}
	if c := requested(Next(in)); c != nil {
		t.Errorf("nobody asked: %+v", c)
	}
	vmi.Status.EvacuationNodeName = "node1"
	next := Next(in)
	if c := requested(next); c == nil || c.Status != corev1.ConditionTrue ||
		c.Reason != v1.VirtualMachineInstanceReasonEvictionRequested {
		t.Errorf("asked: %+v", c)
	}
	cancelled := next.DeepCopy()
	cancelled.EvacuationNodeName = ""
	in.VMI = vmiOf(t, migratingVMI)
	in.VMI.Status = *cancelled
	if c := requested(Next(in)); c != nil {
		t.Errorf("taken back: %+v", c)
	}
	in.VMI.Status = next
	moved := AtTarget(in, node2)
	if moved.NodeName != "node2" || moved.EvacuationNodeName != "" || requested(moved) != nil {
		t.Errorf("left: node %s, to leave %q, %+v", moved.NodeName, moved.EvacuationNodeName, requested(moved))
	}
	in.VMI.Status.EvacuationNodeName = "node2"
	if moved := AtTarget(in, node2); moved.EvacuationNodeName != "node2" || requested(moved) == nil {
		t.Errorf("to leave the node to which it has come: %q, %+v", moved.EvacuationNodeName, requested(moved))
	}
}
