// Package hotplug defines which of a VirtualMachineInstance's volumes are plugged in while the guest runs, and how a
// spec gains and loses one. It is pure: specs in, specs out. Every component asks it, so that all agree on which
// volumes belong to the launcher pod and which to an attachment pod.
//
//	addvolume ─► virt-api: Add to the spec ─► virt-controller: attachment pod, holds the claim on the node
//	                                            └─► virt-handler: claim into the launcher's pod
//	                                                  └─► launcher: disk into the guest
//
// removevolume goes back the same way. What a VirtualMachine declares, by a volume of its template, virt-controller
// carries over to the VMI (Follow) instead of virt-api.
//
// A CD-ROM drive is there without a volume, too, or before its volume: then it is empty. Its volume is the medium,
// which is put in and taken out while the drive stays.
package hotplug

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

const (
	// ReasonAttachFailed is the reason in the status of a volume that could not be attached to the guest. It is tried
	// again.
	ReasonAttachFailed = "VolumeAttachFailed"
	// InUse is in the message of one whose image another process, most likely another guest, has locked.
	InUse = "is in use by another"
)

// Naming returns the beginning of a message of virt-handler and the launcher that is about a volume.
func Naming(volume string) string { return fmt.Sprintf("volume %q: ", volume) }

// Is reports whether a volume is plugged in while the guest runs rather than before it starts.
func Is(volume *v1.Volume) bool {
	source := claims.Of(volume)
	return source != nil && source.Hotpluggable
}

// Volumes returns the volumes of a spec that are hotplugged, in its order.
func Volumes(spec *v1.VirtualMachineInstanceSpec) []*v1.Volume {
	var out []*v1.Volume
	for i := range spec.Volumes {
		if Is(&spec.Volumes[i]) {
			out = append(out, &spec.Volumes[i])
		}
	}
	return out
}

// Names returns the names of a spec's hotplugged volumes.
func Names(spec *v1.VirtualMachineInstanceSpec) map[string]bool {
	out := map[string]bool{}
	for _, volume := range Volumes(spec) {
		out[volume.Name] = true
	}
	return out
}

// Disk returns the disk of a volume, nil when there is none.
func Disk(spec *v1.VirtualMachineInstanceSpec, volume string) *v1.Disk {
	for i := range spec.Domain.Devices.Disks {
		if spec.Domain.Devices.Disks[i].Name == volume {
			return &spec.Domain.Devices.Disks[i]
		}
	}
	return nil
}

// Volume returns the volume of a name, nil when there is none.
func Volume(spec *v1.VirtualMachineInstanceSpec, name string) *v1.Volume {
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == name {
			return &spec.Volumes[i]
		}
	}
	return nil
}

// Without returns a spec without its hotplugged volumes and their disks, and without empty CD-ROM drives: what stays as
// it is while the guest runs. It shares all else with spec and must not be written to.
func Without(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	plugged := Names(spec)
	for name := range drives(spec, plugged) {
		plugged[name] = true
	}
	if len(plugged) == 0 {
		return spec
	}
	return keep(spec, func(name string) bool { return !plugged[name] })
}

// AtStart returns a spec as the guest starts with it: without its hotplugged volumes, of whose disks the CD-ROM drives
// are there, empty. It shares all else with spec and must not be written to.
func AtStart(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	plugged := Names(spec)
	if len(plugged) == 0 {
		return spec
	}
	stay := drives(spec, plugged)
	out := keep(spec, func(name string) bool { return !plugged[name] || stay[name] })
	out.Volumes = slices.DeleteFunc(out.Volumes, func(v v1.Volume) bool { return plugged[v.Name] })
	return out
}

// drives returns the names of the CD-ROM drives that are empty without the plugged volumes.
func drives(spec *v1.VirtualMachineInstanceSpec, plugged map[string]bool) map[string]bool {
	out := map[string]bool{}
	for i := range spec.Domain.Devices.Disks {
		if d := &spec.Domain.Devices.Disks[i]; d.CDRom != nil && (plugged[d.Name] || Volume(spec, d.Name) == nil) {
			out[d.Name] = true
		}
	}
	return out
}

// Pluggable reports whether a disk, which has its defaults, can come to a guest that runs and leave it. A CD-ROM drive
// that cannot still takes media.
func Pluggable(disk *v1.Disk) bool {
	switch {
	case disk.CDRom != nil:
		return disk.CDRom.Bus == v1.DiskBusSCSI
	case disk.LUN != nil:
		return disk.LUN.Bus == v1.DiskBusSCSI
	case disk.Disk != nil:
		return disk.Disk.Bus == v1.DiskBusSCSI || disk.Disk.Bus == v1.DiskBusVirtio
	}
	return false
}

// Only returns a spec with one of its volumes and that one's disk, marked as one that is there from the start.
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

// WithoutDumps returns a spec without the volumes that memory dumps go to, which are no disks. It shares all else with
// spec and must not be written to.
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
