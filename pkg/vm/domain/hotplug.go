package domain

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/pci"
)

// aliasPrefix begins the aliases that users give to devices; libvirt keeps such ones.
const aliasPrefix = "ua-"

// VolumeAlias returns the alias of a volume's disk in the domain.
func VolumeAlias(volume string) string { return aliasPrefix + volume }

// FirstPluggedThread is the number from which on I/O threads are made for disks that are plugged in: beyond those that
// a guest may be started with.
const FirstPluggedThread = 2001

// OwnThread reports whether the disk of a volume that is plugged in gets an I/O thread of its own. Where there is a
// pool of threads, all disks have that.
func OwnThread(spec *v1.VirtualMachineInstanceSpec, volume string) bool {
	d, policy := hotplug.Disk(spec, volume), spec.Domain.IOThreadsPolicy
	return d != nil && enabled(d.DedicatedIOThread, false) && Bus(d) == v1.DiskBusVirtio &&
		(policy == nil || *policy != v1.IOThreadsPolicySupplementalPool)
}

// Hotplugged returns the disk of a volume for a guest that runs. taken are the names that its disks have, thread its
// own I/O thread; 0 is none.
func Hotplugged(
	vmi *v1.VirtualMachineInstance, volume string, src Source, taken []string, thread uint,
) (*libvirtxml.DomainDisk, error) {
	path := "volume " + volume
	d := hotplug.Disk(&vmi.Spec, volume)
	if d == nil {
		return nil, field(path, "the VMI has no disk of that name")
	}
	if b := Bus(d); b != v1.DiskBusSCSI && b != v1.DiskBusVirtio {
		return nil, field(path, "bus %s cannot be plugged in while the guest runs; use scsi or virtio", b)
	}
	x, err := disk(d, src, path)
	if err != nil {
		return nil, err
	}
	prefix := targetPrefix(d)
	for n := 0; ; n++ {
		if name := prefix + letters(n); !slices.Contains(taken, name) {
			x.Target.Dev = name
			break
		}
	}
	x.Alias = &libvirtxml.DomainAlias{Name: VolumeAlias(volume)}
	tune(&vmi.Spec).disk(x, volume)
	x.IOTune = throttle(vmi, d)
	if thread > 0 {
		x.Driver.IOThread = &thread
	}
	if d.Disk != nil && d.Disk.PciAddress != "" {
		a, err := pci.Parse(d.Disk.PciAddress)
		if err != nil {
			return nil, field(path+".disk.pciAddress", "%w", err)
		}
		x.Address = address(a)
	}
	return x, nil
}

// Medium returns the image of a volume as a disk, for the CD-ROM drive that the guest has of that name.
func Medium(vmi *v1.VirtualMachineInstance, volume string, src Source) (*libvirtxml.DomainDisk, error) {
	path := "volume " + volume
	d := hotplug.Disk(&vmi.Spec, volume)
	if d == nil || d.CDRom == nil {
		return nil, field(path, "the VMI has no CD-ROM drive of that name")
	}
	return disk(d, src, path)
}

// SCSIController returns the controller of scsi disks, for a guest that was started without.
func SCSIController(spec *v1.VirtualMachineInstanceSpec) *libvirtxml.DomainController {
	return scsiController(tune(spec))
}

func scsiController(t tuning) *libvirtxml.DomainController {
	index := uint(0)
	x := &libvirtxml.DomainController{Type: "scsi", Index: &index, Model: modernModel}
	t.controller(x)
	return x
}
