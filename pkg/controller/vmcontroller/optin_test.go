package vmcontroller

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// The instance says whether its guest is moved with its disks, as the VM does now.
func TestFollowOptIn(t *testing.T) {
	on := map[string]string{volumemigration.OptInAnnotation: "true"}
	off := map[string]string{volumemigration.OptInAnnotation: "false"}
	for name, tc := range map[string]struct {
		vm, template, vmi map[string]string
		want              string
		changes           bool
	}{
		"nobody says":                {},
		"the VM":                     {vm: on, want: "true", changes: true},
		"its template":               {template: on, want: "true", changes: true},
		"the VM says no":             {vm: off, template: on, want: "false", changes: true},
		"it is taken back":           {vmi: on, changes: true},
		"the instance says it":       {vm: on, vmi: on, want: "true"},
		"and its template, the same": {template: on, vmi: on, want: "true"},
	} {
		vm := &v1.VirtualMachine{}
		vm.Annotations = tc.vm
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.ObjectMeta.Annotations = tc.template
		vmi := &v1.VirtualMachineInstance{}
		vmi.Annotations, vmi.Status.Phase = tc.vmi, v1.Running
		view := View{VM: vm, VMI: vmi}
		view.followOptIn()
		got := view.VMI.Annotations[volumemigration.OptInAnnotation]
		if got != tc.want || (view.VMI != vmi) != tc.changes {
			t.Errorf("%s: %q", name, got)
		}
	}
}
