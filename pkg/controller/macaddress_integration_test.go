//go:build integration

package controller

import (
	"maps"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// A VM's MAC addresses are recorded before it starts, and its VMIs have them, one after the other.
func TestMACsStay(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyManual)
	vm := t.waitPrintable(v1.VirtualMachineStatusStopped)
	recorded := macaddress.Recorded(vm)
	if len(recorded) == 0 {
		t.Fatalf("a VM that has not started yet has %v", vm.Annotations)
	}
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	vmi, pod := t.run("node01")
	if got := macaddress.Recorded(vmi); !maps.Equal(got, recorded) {
		t.Errorf("the VM has %v, its VMI %v", recorded, got)
	}
	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.request(
		v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &vmi.UID},
		v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest},
	)
	t.endPod(pod)
	again := t.waitAnother(vmi.UID)
	if got := macaddress.Recorded(again); !maps.Equal(got, recorded) {
		t.Errorf("the VM has %v, its next VMI %v", recorded, got)
	}
}

// A VM whose MAC address a guest on its network has says so and does not start, until that guest has ended.
func TestMACInUse(tt *testing.T) {
	t := newTest(tt)
	const mac = "02:00:00:00:00:71"
	wire := func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.Interfaces = []v1.Interface{{
			Name: "red", MacAddress: mac,
			InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
		}}
		spec.Networks = []v1.Network{{
			Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: t.namespace + "/red"}},
		}}
	}
	vm := t.createVM(v1.RunStrategyHalted)
	t.waitPrintable(v1.VirtualMachineStatusStopped)
	other := &v1.VirtualMachineInstance{}
	other.Namespace, other.Name, other.Spec = t.namespace, "other", *vm.Spec.Template.Spec.DeepCopy()
	wire(&other.Spec)
	t.must(cluster.Client.Create(t.ctx, other))
	t.must(cluster.Client.Get(t.ctx, t.key(vm.Name), vm))
	before := vm.DeepCopy()
	wire(&vm.Spec.Template.Spec)
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	t.waitVM("says whose MAC address it has", func(vm *v1.VirtualMachine) bool {
		failure := conditions.Find(vm.Status.Conditions, v1.VirtualMachineFailure)
		return failure != nil && failure.Reason == "MACAddressInUse" && !vm.Status.Created && strings.Contains(
			failure.Message, mac+" is the MAC address of VirtualMachineInstance "+t.namespace+"/other, interface red")
	})
	t.must(cluster.Client.Delete(t.ctx, other))
	t.waitGone(other)
	t.waitVM("starts", func(vm *v1.VirtualMachine) bool {
		return vm.Status.Created && conditions.Find(vm.Status.Conditions, v1.VirtualMachineFailure) == nil
	})
}
