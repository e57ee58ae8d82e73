package vmcontroller

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// The instance says whether its guest is moved with its disks, as the VM does now.
func TestFollowOptIn(t *testing.T) {
	on := map[string]string{volumemigration.OptInAnnotation: "true"}
	off := map[string]string{volumemigration.OptInAnnotation: "false"}
	yes := map[string]bool{"c": true}
	for name, tc := range map[string]struct {
		vm, template, vmi map[string]string
		byClass           map[string]bool
		want              string
		changes           bool
	}{
		"nobody says":                 {},
		"the VM":                      {vm: on, want: "true", changes: true},
		"its template":                {template: on, want: "true", changes: true},
		"the VM says no":              {vm: off, template: on, want: "false", changes: true},
		"it is taken back":            {vmi: on, changes: true},
		"the instance says it":        {vm: on, vmi: on, want: "true"},
		"and its template, the same":  {template: on, vmi: on, want: "true"},
		"the class of its claim":      {byClass: yes, want: "true", changes: true},
		"the class, not the VM":       {vm: off, vmi: on, byClass: yes, want: "false", changes: true},
		"the class does not any more": {vmi: on, byClass: map[string]bool{"c": false}, changes: true},
	} {
		vm := &v1.VirtualMachine{}
		vm.Annotations = tc.vm
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.ObjectMeta.Annotations = tc.template
		vmi := &v1.VirtualMachineInstance{}
		vmi.Annotations, vmi.Status.Phase = tc.vmi, v1.Running
		vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "c")}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
		}}
		view := View{VM: vm, VMI: vmi, OptIn: tc.byClass}
		view.followOptIn()
		got := view.VMI.Annotations[volumemigration.OptInAnnotation]
		if got != tc.want || (view.VMI != vmi) != tc.changes {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// VMs are looked at again when a StorageClass opts in, or does not any more, and for no other change of one.
func TestStorageClassChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after map[string]string
		want          bool
	}{
		"nothing":    {},
		"it opts in": {after: map[string]string{volumemigration.OptInAnnotation: "true"}, want: true},
		"it says no": {after: map[string]string{volumemigration.OptInAnnotation: "false"}},
		"no more":    {before: map[string]string{volumemigration.OptInAnnotation: "true"}, want: true},
		"another":    {after: map[string]string{"a": "b"}},
	} {
		before, after := &storagev1.StorageClass{}, &storagev1.StorageClass{}
		before.Annotations, after.Annotations = tc.before, tc.after
		if got := storageClassChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
