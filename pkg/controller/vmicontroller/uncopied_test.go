package vmicontroller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// A VMI whose VM was made to name another claim just now stays until the VM's status says what was not copied: a VM
// without either would start with that claim.
func TestUncopiedHoldsVMI(t *testing.T) {
	volume := func(claim string) []v1.Volume { return []v1.Volume{*volumemigration.OnClaim("data", claim)} }
	leaving := func() *v1.VirtualMachineInstance {
		return testVMI(t, v1.Succeeded, deleted, func(vmi *v1.VirtualMachineInstance) {
			vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: vmi.Name, UID: "vm"}}
			vmi.OwnerReferences = []metav1.OwnerReference{
				*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind),
			}
			vmi.Spec.Volumes, vmi.Status.ActivePods = volume("old"), nil
			vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data"}}
		})
	}
	named := func(uid types.UID, claim string) *v1.VirtualMachine {
		vmi := leaving()
		vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: vmi.Name, UID: uid}}
		vm.Spec.UpdateVolumesStrategy = new(v1.UpdateVolumesStrategyMigration)
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.Spec.Volumes = volume(claim)
		return vm
	}
	known := named("vm", "new")
	known.Status.VolumeUpdateState = volumemigration.UpdateState(known, leaving())
	for name, c := range map[string]struct {
		vm    *v1.VirtualMachine
		stays bool
	}{
		"the VM was changed": {named("vm", "new"), true},
		"it says so":         {known, false},
		"it was not changed": {named("vm", "old"), false},
		"it is another VM":   {named("other", "new"), false},
		"there is none":      {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme})
			if c.vm != nil {
				server = frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme}, c.vm)
			}
			view := View{VMI: leaving(), Now: now}
			if err := (&Reconciler{Live: server}).lookAtUncopied(t.Context(), &view); err != nil {
				t.Fatal(err)
			}
			if step := Next(view); step.RemoveFinalizer == c.stays || c.stays && step.RequeueAfter == 0 {
				t.Errorf("it goes: %t, and is looked at again after %v", step.RemoveFinalizer, step.RequeueAfter)
			}
		})
	}
}
