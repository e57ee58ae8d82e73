package surface

import (
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// The annotation that brings disks has two values, and stays as it was given.
func TestValidateWithDisks(t *testing.T) {
	of := func(value string) *v1.VirtualMachineInstanceMigration {
		m := &v1.VirtualMachineInstanceMigration{Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: "vm"}}
		if value != "" {
			m.Annotations = map[string]string{volumemigration.WithDisksAnnotation: value}
		}
		return m
	}
	for value, valid := range map[string]bool{"": true, "true": true, "false": true, "yes": false} {
		if errs := ValidateVirtualMachineInstanceMigration(of(value), nil); (len(errs) == 0) != valid {
			t.Errorf("%q: %v", value, errs)
		}
	}
	errs := ValidateVirtualMachineInstanceMigration(of("true"), of(""))
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "create another") {
		t.Errorf("changed: %v", errs)
	}
	if errs := ValidateVirtualMachineInstanceMigration(of("true"), of("true")); len(errs) > 0 {
		t.Errorf("unchanged: %v", errs)
	}
	alone := &v1.VirtualMachineInstance{}
	alone.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "a")}
	alone.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
	alone.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a"},
	}}
	if errs := ValidateMigrationOf(alone, of("true")); len(errs) != 1 ||
		!strings.Contains(errs[0].Detail, "no VirtualMachine has made it") {
		t.Errorf("of an instance without a VM: %v", errs)
	}
}
