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

// A volume has grown when its own disk has: that another of the VM's cannot is not its business.
func TestHasSize(t *testing.T) {
	const (
		mi        = 1 << 20
		elsewhere = expansion.ReasonStorage
	)
	disk := &v1.Disk{Name: "blk"}
	for name, test := range map[string]struct {
		before, now *v1.VirtualMachineInstance
		disk        *v1.Disk
		want        bool
	}{
		"nothing yet": {machineWith(100*mi, "100Mi", ""), machineWith(100*mi, "100Mi", ""), disk, false},
		"the storage has it": {
			machineWith(100*mi, "100Mi", ""), machineWith(100*mi, "110Mi", expansion.ReasonGuest), disk, false,
		},
		"all is done": {machineWith(100*mi, "100Mi", ""), machineWith(110*mi, "110Mi", ""), disk, true},
		"another cannot": {
			machineWith(100*mi, "100Mi", elsewhere), machineWith(110*mi, "110Mi", elsewhere), disk, true,
		},
		"another cannot, and this one not yet": {
			machineWith(100*mi, "100Mi", elsewhere), machineWith(100*mi, "110Mi", elsewhere), disk, false,
		},
		"another cannot, a file": {
			machineWith(90*mi, "100Mi", elsewhere), machineWith(99*mi, "110Mi", elsewhere), disk, true,
		},
		"another cannot, a file system": {
			machineWith(0, "100Mi", elsewhere), machineWith(0, "110Mi", elsewhere), nil, true,
		},
		"it started meanwhile": {nil, machineWith(99*mi, "110Mi", elsewhere), disk, false},
		"no guest any more":    {machineWith(100*mi, "100Mi", ""), nil, disk, true},
	} {
		r := &Resizable{VMI: test.before, Volume: &v1.Volume{Name: "blk"}, Disk: test.disk}
		met, err := r.hasSize(resource.MustParse("110Mi")).Met(wait.State{VMI: test.now})
		if met != test.want || err != nil {
			t.Errorf("%s: %t, %v", name, met, err)
		}
	}
}
