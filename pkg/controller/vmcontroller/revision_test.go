package vmcontroller

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A start keeps its own copy of the spec and drops those of earlier ones, but none that is not the VM's.
func TestEarlierStarts(t *testing.T) {
	w := newWorld(t, v1.RunStrategyAlways)
	w.VMI = nil
	start := func(name string, owner *v1.VirtualMachine) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(owner, v1.VirtualMachineGroupVersionKind),
			},
		}}
	}
	another := w.VM.DeepCopy()
	another.UID = "another"
	step := Next(w.View)
	if step.Start == nil || len(step.DropStarts) > 0 {
		t.Fatalf("a first start: %+v, drops %v", step.Start, step.DropStarts)
	}
	w.Starts = []*appsv1.ControllerRevision{
		start("earlier", w.VM), start(step.Start.Name, w.VM), start("theirs", another),
	}
	step = Next(w.View)
	if len(step.DropStarts) != 1 || step.DropStarts[0].Name != "earlier" || len(w.Starts) != 3 {
		t.Errorf("drops %v", step.DropStarts)
	}
}
