package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
)

// machineWith is a running VMI with a disk of so many bytes, on a claim of a capacity; expanding is the reason why the
// VMI's condition stands, "" for none.
func machineWith(disk int64, capacity, expanding string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{
		Phase: v1.Running,
		VolumeStatus: []v1.VolumeStatus{{
			Name: "blk", Size: disk, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)},
			},
		}},
	}}
	if expanding != "" {
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
			{Type: expansion.Condition, Status: corev1.ConditionTrue, Reason: expanding},
		}
	}
	return vmi
}

// shared has the volume given to the guest as a file system.
func shared(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
	vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "blk"}}
	return vmi
}

// A volume has grown when its own disk has: that another of the VM's cannot is not its business.
func TestHasSize(t *testing.T) {
	const (
		mi        = 1 << 20
		elsewhere = expansion.ReasonStorage
	)
	for name, test := range map[string]struct {
		before, now *v1.VirtualMachineInstance
		want        bool
	}{
		"nothing yet": {machineWith(100*mi, "100Mi", ""), machineWith(100*mi, "100Mi", ""), false},
		"the storage has it": {
			machineWith(100*mi, "100Mi", ""), machineWith(100*mi, "110Mi", expansion.ReasonGuest), false,
		},
		"all is done": {machineWith(100*mi, "100Mi", ""), machineWith(110*mi, "110Mi", ""), true},
		"another cannot": {
			machineWith(100*mi, "100Mi", elsewhere), machineWith(110*mi, "110Mi", elsewhere), true,
		},
		"another cannot, and this one not yet": {
			machineWith(100*mi, "100Mi", elsewhere), machineWith(100*mi, "110Mi", elsewhere), false,
		},
		"another cannot, a file": {
			machineWith(90*mi, "100Mi", elsewhere), machineWith(99*mi, "110Mi", elsewhere), true,
		},
		"another cannot, a file system": {
			shared(machineWith(0, "100Mi", elsewhere)), machineWith(0, "110Mi", elsewhere), true,
		},
		"it started meanwhile": {nil, machineWith(99*mi, "110Mi", elsewhere), false},
		"no guest any more":    {machineWith(100*mi, "100Mi", ""), nil, true},
	} {
		r := &Resizable{VMI: test.before, Volume: &v1.Volume{Name: "blk"}}
		met, err := r.hasSize(resource.MustParse("110Mi")).Met(wait.State{VMI: test.now})
		if met != test.want || err != nil {
			t.Errorf("%s: %t, %v", name, met, err)
		}
	}
}
