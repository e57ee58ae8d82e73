//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// Objects may be applied in any order: a VM waits for its instance type and its preference, says so, and starts with
// what they say.
func TestObjectsInAnyOrder(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "early", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "later", Kind: "VirtualMachineInstancetype"}
		vm.Spec.Preference = &v1.PreferenceMatcher{Name: "later", Kind: "VirtualMachinePreference"}
		domain := &vm.Spec.Template.Spec.Domain
		domain.CPU, domain.Memory, domain.Resources = nil, nil, v1.ResourceRequirements{}
	}))
	waits := func(field, reason string) {
		t.Helper()
		eventually(t, 60*time.Second, "the VM waits for "+field, func() string {
			vm := &v1.VirtualMachine{}
			if err := c.Client.Get(t.Context(), g.key(), vm); err != nil {
				return err.Error()
			}
			failure := conditions.Find(vm.Status.Conditions, v1.VirtualMachineFailure)
			if failure == nil || failure.Reason != reason || !strings.HasPrefix(failure.Message, field) {
				return "conditions are not as wanted"
			}
			if vm.Status.PrintableStatus != v1.VirtualMachineStatusStopped {
				return "its status is " + string(vm.Status.PrintableStatus)
			}
			return ""
		})
	}
	add := func(object client.Object) {
		t.Helper()
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	later := metav1.ObjectMeta{Namespace: ns, Name: "later"}
	waits("spec.instancetype.name", "FailedFindInstancetype")
	add(&v1beta1.VirtualMachineInstancetype{ObjectMeta: later, Spec: v1beta1.VirtualMachineInstancetypeSpec{
		CPU: v1beta1.CPUInstancetype{Guest: 2}, Memory: v1beta1.MemoryInstancetype{Guest: resource.MustParse("160Mi")},
	}})
	waits("spec.preference.name", "FailedFindPreference")
	add(&v1beta1.VirtualMachinePreference{ObjectMeta: later, Spec: v1beta1.VirtualMachinePreferenceSpec{
		CPU:     &v1beta1.CPUPreferences{PreferredCPUTopology: ptr(v1beta1.Threads)},
		Machine: &v1beta1.MachinePreferences{PreferredMachineType: "pc-q35-9.2"},
	}})
	vmi := g.waitPhase(t, bootTime, v1.Running)
	if cpu := vmi.Spec.Domain.CPU; cpu.Threads != 2 || vmi.Spec.Domain.Memory.Guest.String() != "160Mi" {
		t.Errorf("the guest has %+v, %s", cpu, vmi.Spec.Domain.Memory.Guest)
	}
	if machine := vmi.Spec.Domain.Machine.Type; machine != "pc-q35-9.2" {
		t.Errorf("the guest's machine is %s", machine)
	}
}
