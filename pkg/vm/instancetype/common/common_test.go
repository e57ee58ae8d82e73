package common

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// All are admitted, and so is a VM that refers to them.
func TestAll(t *testing.T) {
	names := map[string]bool{}
	check := func(name string, size *v1beta1.VirtualMachineClusterInstancetype,
		preference *v1beta1.VirtualMachineClusterPreference,
	) {
		if names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
		vm := &v1.VirtualMachine{}
		vm.Name = "vm"
		vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: size.Name, Kind: size.Kind}
		vm.Spec.Preference = &v1.PreferenceMatcher{Name: preference.Name, Kind: preference.Kind}
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.Spec.Volumes = []v1.Volume{
			{Name: "root", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "x"}}},
		}
		resolved := instancetype.Resolved{
			Instancetype: &instancetype.Object{Instancetype: &size.Spec},
			Preference:   &instancetype.Object{Preference: &preference.Spec},
		}
		template, errs := instancetype.Expand(vm, resolved)
		if len(errs) > 0 {
			t.Errorf("%s: %s", name, surface.Message(errs))
			return
		}
		surface.DefaultVirtualMachine(vm, nil, surface.Defaults{})
		if errs := surface.ValidateExpanded(vm, &template.Spec, surface.Defaults{}); len(errs) > 0 {
			t.Errorf("%s: %s", name, surface.Message(errs))
		}
	}
	sizes, preferences := Instancetypes(), Preferences()
	linux, large := preferences[6], sizes[5]
	if linux.Name != "linux" || large.Name != "u1.large" {
		t.Fatalf("%s and %s are not what is meant here", linux.Name, large.Name)
	}
	for _, size := range sizes {
		if errs := instancetype.Validate(&size.Spec); len(errs) > 0 {
			t.Errorf("%s: %s", size.Name, surface.Message(errs))
		}
		check(size.Name, size, linux)
	}
	for _, preference := range preferences {
		if errs := instancetype.ValidatePreference(&preference.Spec); len(errs) > 0 {
			t.Errorf("%s: %s", preference.Name, surface.Message(errs))
		}
		check(preference.Name, large, preference)
	}
	if len(sizes) < 30 || len(preferences) < 25 {
		t.Errorf("%d instance types, %d preferences", len(sizes), len(preferences))
	}
}
