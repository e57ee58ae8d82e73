package vmistatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// TestConditionsOfController: virt-handler leaves the conditions as they are that virt-controller alone writes. The API
// server would refuse the whole status otherwise.
func TestConditionsOfController(t *testing.T) {
	vmi := vmiOf(t, migratingVMI)
	for _, kind := range conditions.OfController() {
		conditions.Set(&vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceConditionType(kind), Status: corev1.ConditionTrue, Message: "x",
		}, now)
	}
	in := Input{VMI: vmi, Pod: pod(), Guest: guest(nil), Plan: plan(), Now: now}
	gone := Input{VMI: vmi, Pod: pod(), Gone: "the launcher is gone", Now: now}
	for name, status := range map[string]v1.VirtualMachineInstanceStatus{
		"at the source": Next(in), "at the target": AtTarget(in, node2), "gone": Next(gone),
	} {
		for _, kind := range conditions.OfController() {
			was, is := conditions.Find(vmi.Status.Conditions, kind), conditions.Find(status.Conditions, kind)
			if is == nil || *is != *was {
				t.Errorf("%s: %s is %+v, and was %+v", name, kind, is, was)
			}
		}
	}
}
