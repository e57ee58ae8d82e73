package vmistatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// TestDevicesOfTheNode: a guest with a device of its node stays there, with its disks or without.
func TestDevicesOfTheNode(t *testing.T) {
	for _, devices := range []v1.Devices{{GPUs: []v1.GPU{{Name: "a"}}}, {HostDevices: []v1.HostDevice{{Name: "a"}}}} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Devices = devices
		c := &conditionList{now: now}
		migratable(vmi, nil, nil, false, c)
		if len(c.list) != 2 {
			t.Fatalf("conditions %+v", c.list)
		}
		for _, got := range c.list {
			if got.Status != corev1.ConditionFalse || got.Reason != "HostDeviceNotLiveMigratable" {
				t.Errorf("%+v", got)
			}
		}
	}
}
