package domain

import (
	"math"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// PluggedMemory is the alias of the device by which memory is given to a guest that runs.
const PluggedMemory = "ua-virtio-mem"

// memoryBytes returns the guest's memory.
func memoryBytes(spec *v1.DomainSpec) (uint, error) {
	quantity, _ := sizing.Memory(spec)
	bytes := quantity.Value()
	if bytes <= 0 || bytes == math.MaxInt64 {
		return 0, field("spec.domain.memory.guest", "the guest's memory is not set")
	}
	return uint(bytes), nil
}

// roomToGrow returns how much memory the guest may get while it runs, bytes.
func roomToGrow(spec *v1.DomainSpec, boot uint) uint {
	if m := spec.Memory; m == nil || m.MaxGuest == nil || sizing.MemoryObstacle(spec) != "" ||
		m.MaxGuest.Value() <= int64(boot) {
		return 0
	}
	return uint(spec.Memory.MaxGuest.Value()) - boot
}

// memory sets the guest's memory, what is behind it, and the room to grow.
func memory(d *libvirtxml.Domain, spec *v1.DomainSpec) error {
	boot, err := memoryBytes(spec)
	if err != nil {
		return err
	}
	d.Memory = &libvirtxml.DomainMemory{Value: boot, Unit: "b"}
	if page := sizing.PageSize(spec); page != 0 {
		d.MemoryBacking = &libvirtxml.DomainMemoryBacking{MemoryHugePages: &libvirtxml.DomainMemoryHugepages{
			Hugepages: []libvirtxml.DomainMemoryHugepage{{Size: uint(page), Unit: "b"}},
		}}
	}
	if room := roomToGrow(spec, boot); room > 0 {
		d.MaximumMemory = &libvirtxml.DomainMaxMemory{Value: boot + room, Unit: "b", Slots: 1}
		// QEMU plugs memory into NUMA nodes only.
		cell := uint(0)
		d.CPU.Numa = &libvirtxml.DomainNuma{
			Cell: []libvirtxml.DomainCell{{ID: &cell, CPUs: idRange(int(d.VCPU.Value)), Memory: boot, Unit: "b"}},
		}
	}
	return nil
}

// GrowableMemory returns the device by which a guest that was booted with boot bytes of memory gets more while it runs,
// up to maxGuest; nil when it has no room. requested is the part of it that the guest has now, bytes.
func GrowableMemory(spec *v1.DomainSpec, boot, requested uint) *libvirtxml.DomainMemorydev {
	room := roomToGrow(spec, boot)
	if room == 0 {
		return nil
	}
	dev := &libvirtxml.DomainMemorydev{
		Model: "virtio-mem",
		Target: &libvirtxml.DomainMemorydevTarget{
			Size:      &libvirtxml.DomainMemorydevTargetSize{Value: room, Unit: "b"},
			Node:      &libvirtxml.DomainMemorydevTargetNode{Value: 0},
			Block:     &libvirtxml.DomainMemorydevTargetBlock{Value: uint(sizing.Alignment(spec)), Unit: "b"},
			Requested: &libvirtxml.DomainMemorydevTargetRequested{Value: requested, Unit: "b"},
		},
		Alias: &libvirtxml.DomainAlias{Name: PluggedMemory},
	}
	if page := sizing.PageSize(spec); page != 0 {
		dev.Source = &libvirtxml.DomainMemorydevSource{
			PageSize: &libvirtxml.DomainMemorydevSourcePagesize{Value: uint64(page), Unit: "b"},
		}
	}
	return dev
}
