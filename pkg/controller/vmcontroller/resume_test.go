package vmcontroller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

func TestResume(t *testing.T) {
	mark := savedmemory.Resume{
		Claim: "c", Restore: "r", MACs: map[string]string{"a": "02:00:00:00:00:01", "b": "02:00:00:00:00:02"},
	}
	text, err := mark.Encode()
	if err != nil {
		t.Fatal(err)
	}
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{savedmemory.ResumeAnnotation: text}},
	}
	made := func() *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{
			{Name: "a"},
			{Name: "b", MacAddress: "02:00:00:00:00:09"},
			{Name: "c"},
		}
		return vmi
	}
	vmi := made()
	resume(vm, vmi)
	for i, want := range []string{"02:00:00:00:00:01", "02:00:00:00:00:09", ""} {
		if got := vmi.Spec.Domain.Devices.Interfaces[i].MacAddress; got != want {
			t.Errorf("interface %d has %q, not %q", i, got, want)
		}
	}
	if vmi.Annotations[savedmemory.ResumeAnnotation] != text {
		t.Errorf("annotations: %v", vmi.Annotations)
	}
	other := made()
	resume(&v1.VirtualMachine{}, other)
	if len(other.Annotations) > 0 || other.Spec.Domain.Devices.Interfaces[0].MacAddress != "" {
		t.Errorf("a VM that was not restored: %+v", other)
	}
	for phase, want := range map[v1.VirtualMachineInstancePhase]bool{
		v1.Scheduled: false,
		v1.Running:   true,
		v1.Failed:    false,
	} {
		vmi.Status.Phase = phase
		view := View{VM: vm, VMI: vmi}
		if got := view.resumed(); got != want {
			t.Errorf("%s: %t", phase, got)
		}
		other.Status.Phase = phase
		if (&View{VM: vm, VMI: other}).resumed() {
			t.Errorf("%s: an instance of before the restore has resumed", phase)
		}
	}
	vmi.Status.Phase = v1.Running
	vm.Finalizers = []string{v1.VirtualMachineControllerFinalizer}
	if step := Next(View{VM: vm, VMI: vmi}); !step.Resumed || len(step.Events) != 1 || step.Status {
		t.Errorf("%+v", step)
	}
}

// A guest whose disks do not fit its memory is not started: neither resumed, which would destroy them, nor booted,
// since nobody has asked for that.
func TestMisfit(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{v1.VirtualMachineControllerFinalizer}}}
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	if step := Next(View{VM: vm, Filled: true}); step.Create == nil {
		t.Fatalf("it does not start: %+v", step)
	}
	step := Next(View{VM: vm, Filled: true, Misfit: "other disks"})
	status := Status(step.After, step.Decision)
	failure := conditions.Find(status.Conditions, v1.VirtualMachineFailure)
	if step.Create != nil || len(step.Events) != 1 || failure == nil || failure.Reason != reasonNotResumed {
		t.Fatalf("%+v, %+v", step, failure)
	}
	vm.Status = status
	if step := Next(View{VM: vm, Filled: true, Misfit: "other disks"}); len(step.Events) > 0 {
		t.Errorf("it is said again: %+v", step.Events)
	}
	vm.Spec.RunStrategy = new(v1.RunStrategyHalted)
	step = Next(View{VM: vm, Filled: true, Misfit: "other disks"})
	if step.After.Failure != "" || len(step.Events) > 0 {
		t.Errorf("a VM that is off says %q", step.After.Failure)
	}
}
