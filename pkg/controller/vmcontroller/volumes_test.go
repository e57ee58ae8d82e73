package vmcontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// What of a VM's volumes its guest cannot have while it runs is what a restart is required for, with the reason.
func TestVolumesAndRestart(t *testing.T) {
	disc := v1.Volume{
		Name: "cd",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
			Hotpluggable:                      true,
		}},
	}
	drive := v1.Disk{Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}}
	const changed = "a non-live-updatable field was changed in the template spec"
	for name, tc := range map[string]struct {
		drive  bool // at the start
		change func(*v1.VirtualMachineInstanceSpec)
		staged bool
		// want is the condition's message; empty is none.
		want string
	}{
		"nothing": {true, func(*v1.VirtualMachineInstanceSpec) {}, false, ""},
		"a disc":  {true, func(s *v1.VirtualMachineInstanceSpec) { s.Volumes = append(s.Volumes, disc) }, false, ""},
		"staged": {
			true, func(s *v1.VirtualMachineInstanceSpec) { s.Volumes = append(s.Volumes, disc) }, true,
			changed + ": spec.template.spec.volumes[cd] (vmRolloutStrategy is Stage)",
		},
		"a drive": {
			false,
			func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, drive) },
			false,
			changed +
				": spec.template.spec.domain.devices.disks[cd] (a CD-ROM drive comes, goes and changes only then)",
		},
		"and more": {
			false, func(s *v1.VirtualMachineInstanceSpec) {
				s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, drive)
				s.Volumes = append(s.Volumes, disc)
				s.Hostname = "other"
			}, false,
			changed +
				": spec.template.spec.domain.devices.disks[cd] (a CD-ROM drive comes, " +
				"goes and changes only then), spec.template.spec.hostname",
		},
	} {
		vm := testVM(v1.RunStrategyAlways)
		spec := &vm.Spec.Template.Spec
		if tc.drive {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, drive)
		}
		made, err := Instance(vm, false)
		if err != nil {
			t.Fatal(err)
		}
		surface.DefaultVirtualMachineInstance(made, surface.Defaults{})
		made.Status.Phase = v1.Running
		vm = vm.DeepCopy()
		vm.Generation++
		tc.change(&vm.Spec.Template.Spec)
		template := vm.Spec.Template.Spec.DeepCopy()
		surface.DefaultDisks(template)
		view := View{VM: vm, VMI: made, Volumes: hotplug.Follow(template, made, !tc.staged)}
		if got := restartOf(status(t, view)); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestDeclaredAtStart(t *testing.T) {
	vm := testVM(v1.RunStrategyAlways)
	for _, name := range []string{"b", "a"} {
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, v1.Volume{
			Name: name,
			VolumeSource: v1.VolumeSource{
				DataVolume: &v1.DataVolumeSource{Name: name, Hotpluggable: true},
			},
		})
	}
	made, err := Instance(vm, false)
	if err != nil || made.Annotations[hotplug.DeclaredAnnotation] != "a,b" {
		t.Errorf("%v, %v", made.Annotations, err)
	}
}
