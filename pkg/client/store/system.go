package store

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// HasSystem reports whether a machine has a volume that may hold a system, or boots without one: a kernel of its own,
// or from the network.
func HasSystem(spec *v1.VirtualMachineInstanceSpec) bool {
	if f := spec.Domain.Firmware; f != nil && f.KernelBoot != nil {
		return true
	}
	fromNetwork := func(i v1.Interface) bool { return i.BootOrder != nil }
	return slices.ContainsFunc(spec.Domain.Devices.Interfaces, fromNetwork) ||
		slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool {
			return v.ContainerDisk != nil || v.PersistentVolumeClaim != nil || v.DataVolume != nil ||
				v.HostDisk != nil || v.Ephemeral != nil
		})
}
