// Package hotplug says which of a VirtualMachineInstance's volumes are plugged in while the guest runs, and
// how a spec gains and loses one. It is pure: specs in, specs out. Every component asks it, so that all
// agree on what belongs to the launcher pod and what to an attachment pod.
//
//	addvolume ─► virt-api: Add to the spec ─► virt-controller: attachment pod, holds the claim on the node
//	                                            └─► virt-handler: claim into the launcher's pod
//	                                                  └─► launcher: disk into the guest
//
// removevolume goes back the same way.
package hotplug

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/claim"
)

// Is reports whether a volume is plugged in while the guest runs rather than before it starts.
func Is(volume *v1.Volume) bool {
	source := claim.Of(volume)
	return source != nil && source.Hotpluggable
}

// Volumes are the volumes of a spec that are hotplugged, in its order.
func Volumes(spec *v1.VirtualMachineInstanceSpec) []*v1.Volume {
	var out []*v1.Volume
	for i := range spec.Volumes {
		if Is(&spec.Volumes[i]) {
			out = append(out, &spec.Volumes[i])
		}
	}
	return out
}

// Names are the names of a spec's hotplugged volumes.
func Names(spec *v1.VirtualMachineInstanceSpec) map[string]bool {
	out := map[string]bool{}
	for _, volume := range Volumes(spec) {
		out[volume.Name] = true
	}
	return out
}

// Disk is the disk of a volume, nil when there is none.
func Disk(spec *v1.VirtualMachineInstanceSpec, volume string) *v1.Disk {
	for i := range spec.Domain.Devices.Disks {
		if spec.Domain.Devices.Disks[i].Name == volume {
			return &spec.Domain.Devices.Disks[i]
		}
	}
	return nil
}

// Volume is the volume of a name, nil when there is none.
func Volume(spec *v1.VirtualMachineInstanceSpec, name string) *v1.Volume {
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == name {
			return &spec.Volumes[i]
		}
	}
	return nil
}

// Without is a spec without its hotplugged volumes and their disks: what the guest starts with. It shares
// all else with spec and must not be written to.
func Without(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	plugged := Names(spec)
	if len(plugged) == 0 {
		return spec
	}
	return keep(spec, func(name string) bool { return !plugged[name] })
}

// Only is a spec with one of its volumes and that one's disk, marked as one that is there from the start.
func Only(spec *v1.VirtualMachineInstanceSpec, volume string) *v1.VirtualMachineInstanceSpec {
	out := keep(spec, func(name string) bool { return name == volume })
	for i := range out.Volumes {
		out.Volumes[i] = *out.Volumes[i].DeepCopy()
		if source := out.Volumes[i].PersistentVolumeClaim; source != nil {
			source.Hotpluggable = false
		}
		if source := out.Volumes[i].DataVolume; source != nil {
			source.Hotpluggable = false
		}
	}
	return out
}

// WithoutDumps is a spec without the volumes that memory dumps go to, which are no disks. It shares all else with spec and
// must not be written to.
func WithoutDumps(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	dumps := map[string]bool{}
	for i := range spec.Volumes {
		if spec.Volumes[i].MemoryDump != nil {
			dumps[spec.Volumes[i].Name] = true
		}
	}
	if len(dumps) == 0 {
		return spec
	}
	return keep(spec, func(name string) bool { return !dumps[name] })
}

// keep copies a spec with those of its volumes and disks that are wanted.
func keep(spec *v1.VirtualMachineInstanceSpec, wanted func(name string) bool) *v1.VirtualMachineInstanceSpec {
	out := *spec
	out.Volumes, out.Domain.Devices.Disks = nil, nil
	for _, volume := range spec.Volumes {
		if wanted(volume.Name) {
			out.Volumes = append(out.Volumes, volume)
		}
	}
	for _, disk := range spec.Domain.Devices.Disks {
		if wanted(disk.Name) {
			out.Domain.Devices.Disks = append(out.Domain.Devices.Disks, disk)
		}
	}
	return &out
}
