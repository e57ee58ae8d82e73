package vmistatus

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// A guest behind other policies than those that hold says so, and no more when they do.
func TestUnpoliced(t *testing.T) {
	in := Input{VMI: vmiOf(t, scheduled), Pod: pod(), Now: now, Guest: guest(nil), Unpoliced: "nftables: no"}
	got := Next(in)
	c := conditions.Find(got.Conditions, v1.VirtualMachineInstanceSynchronized)
	if c == nil || c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "nftables: no") {
		t.Errorf("%+v", c)
	}
	in.VMI, in.Unpoliced = in.VMI.DeepCopy(), ""
	in.VMI.Status = got
	if c := conditions.Find(Next(in).Conditions, v1.VirtualMachineInstanceSynchronized); c != nil {
		t.Errorf("%+v", c)
	}
}
