package store

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// TestObjectUID: a row has the UID of its VM, running or not, and that of the instance only without a VM.
func TestObjectUID(t *testing.T) {
	t.Parallel()
	vm := func(name string) v1.VirtualMachine {
		return v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("vm-" + name)}}
	}
	runs := vm("runs")
	vmi := func(name string, owners ...metav1.OwnerReference) v1.VirtualMachineInstance {
		return v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("vmi-" + name), OwnerReferences: owners,
		}}
	}
	m := NewMachines(func() {})
	m.Load([]v1.VirtualMachine{runs, vm("off")}, []v1.VirtualMachineInstance{
		vmi("runs", *metav1.NewControllerRef(&runs, v1.VirtualMachineGroupVersionKind)), vmi("alone"),
	})
	got := map[string]types.UID{}
	for _, row := range m.Rows() {
		got[row.Name] = row.ObjectUID
	}
	for name, want := range map[string]types.UID{"runs": "vm-runs", "off": "vm-off", "alone": "vmi-alone"} {
		if got[name] != want {
			t.Errorf("%s: %q, not %q", name, got[name], want)
		}
	}
}
