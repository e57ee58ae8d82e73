package domain

import (
	"math"
	"strconv"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Targets returns the name that each disk's volume has in the domain (vda, sda, …). virtio has its own letters; sata,
// scsi and usb share theirs.
func Targets(spec *v1.VirtualMachineInstanceSpec) map[string]string {
	out := make(map[string]string, len(spec.Domain.Devices.Disks))
	used := map[string]int{}
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i]
		prefix := targetPrefix(d)
		out[d.Name] = prefix + letters(used[prefix])
		used[prefix]++
	}
	return out
}

func targetPrefix(d *v1.Disk) string {
	if Bus(d) == v1.DiskBusVirtio {
		return "vd"
	}
	return "sd"
}

// letters counts a, b, … z, aa, ab, … as the kernel names disks.
func letters(n int) string {
	s := ""
	for n >= 0 {
		s = string(rune('a'+n%26)) + s
		n = n/26 - 1
	}
	return s
}

// Bus returns the disk's bus, or the default of its kind: virtio for disks, sata for CD-ROMs, scsi for LUNs.
func Bus(d *v1.Disk) v1.DiskBus {
	switch {
	case d.CDRom != nil && d.CDRom.Bus != "":
		return d.CDRom.Bus
	case d.CDRom != nil:
		return v1.DiskBusSATA
	case d.LUN != nil && d.LUN.Bus != "":
		return d.LUN.Bus
	case d.LUN != nil:
		return v1.DiskBusSCSI
	case d.Disk != nil && d.Disk.Bus != "":
		return d.Disk.Bus
	}
	return v1.DiskBusVirtio
}

// disks returns the domain's disks in the VMI's order.
func disks(vmi *v1.VirtualMachineInstance, facts Facts) ([]libvirtxml.DomainDisk, error) {
	volumes := make(map[string]*v1.Volume, len(vmi.Spec.Volumes))
	for i := range vmi.Spec.Volumes {
		volumes[vmi.Spec.Volumes[i].Name] = &vmi.Spec.Volumes[i]
	}
	targets := Targets(&vmi.Spec)
	order := bootOrder(&vmi.Spec, volumes)
	tuning := tune(&vmi.Spec)
	addresses, _, err := Addresses(&vmi.Spec)
	if err != nil {
		return nil, err
	}
	var out []libvirtxml.DomainDisk
	for i := range vmi.Spec.Domain.Devices.Disks {
		d := &vmi.Spec.Domain.Devices.Disks[i]
		path := "spec.domain.devices.disks[" + itoa(i) + "]"
		src, ok := facts.Disks[d.Name]
		switch {
		case volumes[d.Name] == nil && d.CDRom == nil:
			return nil, field(path, "no volume is named %q", d.Name)
		case volumes[d.Name] == nil:
			src = empty
		case !ok:
			return nil, field(path, "volume %q has no image", d.Name)
		}
		x, err := disk(d, src, path)
		if err != nil {
			return nil, err
		}
		x.Target.Dev = targets[d.Name]
		tuning.disk(x, d.Name)
		x.IOTune = throttle(vmi, d)
		if a, ok := addresses[d.Name]; ok {
			x.Address = address(a)
		}
		x.Alias = &libvirtxml.DomainAlias{Name: VolumeAlias(d.Name)}
		if n := order[d.Name]; n > 0 {
			x.Boot = &libvirtxml.DomainDeviceBoot{Order: n}
		}
		out = append(out, *x)
	}
	return out, nil
}

// empty is the medium of a CD-ROM drive that has none.
var empty = Source{Format: "raw"}

// disk returns one disk without its name and boot order.
func disk(d *v1.Disk, src Source, path string) (*libvirtxml.DomainDisk, error) {
	x := &libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{
			Name: "qemu", Type: src.Format, ErrorPolicy: "stop",
			Discard: "unmap",
		},
		Source:       file(src),
		BackingStore: backing(src),
		Target:       &libvirtxml.DomainDiskTarget{Bus: string(Bus(d))},
		Serial:       d.Serial,
	}
	readOnly := src.ReadOnly
	switch {
	case d.LUN != nil:
		if !src.Block {
			return nil, field(path+".lun", "the guest's SCSI commands go to the volume's device, and it has none; "+
				"use a claim with volumeMode: Block, or disk with bus scsi")
		}
		if b := Bus(d); b != v1.DiskBusSCSI {
			return nil, field(path+".lun.bus", "%s has no LUNs; use scsi", b)
		}
		x.Device = "lun"
		readOnly = readOnly || d.LUN.ReadOnly
	case d.CDRom != nil:
		x.Device = "cdrom"
		readOnly = true
		if d.CDRom.Tray != "" {
			x.Target.Tray = string(d.CDRom.Tray)
		}
	case d.Disk != nil:
		readOnly = readOnly || d.Disk.ReadOnly
	}
	if readOnly {
		if x.Device == "disk" && Bus(d) == v1.DiskBusSATA {
			return nil, field(path, "a sata disk cannot be read-only; use bus virtio or scsi, or a cdrom")
		}
		x.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
		x.Driver.Discard = ""
	}
	if x.Device == "cdrom" && Bus(d) == v1.DiskBusVirtio {
		return nil, field(path+".cdrom.bus", "virtio has no CD-ROMs; use sata, scsi or usb")
	}
	if enabled(d.Shareable, false) {
		x.Shareable = &libvirtxml.DomainDiskShareable{}
	}
	if d.ErrorPolicy != nil {
		x.Driver.ErrorPolicy = string(*d.ErrorPolicy)
	}
	driver(x.Driver, d, src)
	x.BlockIO = blockSize(d.BlockSize, src)
	return x, nil
}

// blockSize returns the sizes that the guest sees; nil leaves them to QEMU.
func blockSize(b *v1.BlockSize, src Source) *libvirtxml.DomainDiskBlockIO {
	switch {
	case b == nil:
		return nil
	case b.Custom != nil:
		return &libvirtxml.DomainDiskBlockIO{
			LogicalBlockSize: b.Custom.Logical, PhysicalBlockSize: b.Custom.Physical,
			DiscardGranularity: b.Custom.DiscardGranularity,
		}
	case b.MatchVolume != nil && enabled(b.MatchVolume.Enabled, true) && src.Blocks != nil:
		out := &libvirtxml.DomainDiskBlockIO{
			LogicalBlockSize:  src.Blocks.Logical,
			PhysicalBlockSize: src.Blocks.Physical,
		}
		if src.Blocks.Discard > 0 {
			out.DiscardGranularity = &src.Blocks.Discard
		}
		return out
	}
	return nil
}

// driver fills in cache and I/O mode: no host cache where the file system can do without, so that
// what the guest flushes is on the disk; native asynchronous I/O for devices, which never block it.
func driver(x *libvirtxml.DomainDiskDriver, d *v1.Disk, src Source) {
	x.Cache = string(d.Cache)
	if x.Cache == "" {
		x.Cache = string(v1.CacheWriteThrough)
		if src.DirectIO {
			x.Cache = string(v1.CacheNone)
		}
	}
	x.IO = string(d.IO)
	if x.IO == "" && src.Block && x.Cache == string(v1.CacheNone) {
		x.IO = string(v1.IONative)
	}
}

// file returns the libvirt source of an image.
func file(src Source) *libvirtxml.DomainDiskSource {
	if src.Path == "" {
		return nil
	}
	if src.Block {
		return &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: src.Path}}
	}
	return &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: src.Path}}
}

// backing returns the backing chain of an image, down to its explicit end: left out, libvirt would believe what the
// image says, and the guest can write the image.
func backing(src Source) *libvirtxml.DomainDiskBackingStore {
	if src.Format == "raw" {
		return nil
	}
	if src.Backing == nil {
		return &libvirtxml.DomainDiskBackingStore{}
	}
	b := &libvirtxml.DomainDiskBackingStore{
		Format:       &libvirtxml.DomainDiskFormat{Type: src.Backing.Format},
		Source:       file(*src.Backing),
		BackingStore: backing(*src.Backing),
	}
	if b.BackingStore == nil {
		b.BackingStore = &libvirtxml.DomainDiskBackingStore{}
	}
	return b
}

// bootOrder returns the boot position of each disk. When the VMI gives none to any device, its disks boot in the order
// listed, without those that only carry configuration.
func bootOrder(spec *v1.VirtualMachineInstanceSpec, volumes map[string]*v1.Volume) map[string]uint {
	out := map[string]uint{}
	given := false
	for _, d := range spec.Domain.Devices.Disks {
		if d.BootOrder != nil {
			out[d.Name], given = narrow(*d.BootOrder), true
		}
	}
	for _, i := range spec.Domain.Devices.Interfaces {
		given = given || i.BootOrder != nil
	}
	if given {
		return out
	}
	next := uint(1)
	for _, d := range spec.Domain.Devices.Disks {
		if v := volumes[d.Name]; v != nil && !claims.Configuration(v) && v.DownwardMetrics == nil {
			out[d.Name] = next
			next++
		}
	}
	return out
}

// narrow keeps a number within what libvirt reads (32 bits).
func narrow(n uint) uint { return min(n, math.MaxInt32) }

func itoa(n int) string { return strconv.Itoa(n) }
