package domain

import (
	"maps"

	v1 "kubevirt.io/api/core/v1"
)

func init() {
	maps.Copy(cases, map[string]func(*v1.VirtualMachineInstance, *Facts){
		"serial-console-not-logged": func(vmi *v1.VirtualMachineInstance, _ *Facts) {
			vmi.Spec.Domain.Devices.LogSerialConsole = new(false)
		},
	})
}
