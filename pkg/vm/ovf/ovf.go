// Package ovf describes a VM to other hypervisors: the OVF and the manifest of an OVA, as DMTF's DSP0243 1.1 has them.
// The disks are what the export's server makes of them. It is pure.
//
//	VM, disks ─► Describe ─► NAME.ovf        checksums ─► Manifest ─► NAME.mf
//
// The hardware in it is what each hypervisor has: IDE or SATA controllers, E1000 cards. What the guest has here is in
// elements of Namespace, which others pass over and `virtctl import` reads.
package ovf

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

const (
	// Namespace is the XML namespace of virtkit's elements.
	Namespace = "https://virtkit.io/ovf/1"
	// ElementBus and ElementModel are in it: the bus of a disk, and the model of a network card.
	ElementBus, ElementModel = "DiskBus", "InterfaceModel"
	// FormatVMDK is the format of a disk, by VMware's name for it.
	FormatVMDK = "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"
	// NetworkPod is what a descriptor calls the pod's network.
	NetworkPod = "pod"
)

// Disk is a disk, or what is in a CD drive, as a file of the OVA.
type Disk struct {
	// Volume is the VM's name for it.
	Volume string
	// File is the file, and Bytes its size. Capacity is the size of the disk.
	File            string
	Bytes, Capacity int64
}

// Volume is a volume of a VM on a claim that an OVA may have as a disk.
type Volume struct {
	Name, Claim string
	CDROM       bool
}

// Volumes returns the volumes on claims that the guest has as disks or in CD drives, in the order of the disks of an
// OVF: what the guest boots from is first. A claim is there once.
func Volumes(spec *v1.VirtualMachineInstanceSpec) []Volume {
	var out []Volume
	order := map[string]uint{}
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		claim := claims.Name(volume)
		same := func(other Volume) bool { return other.Claim == claim }
		if claim == "" || !filesystems.Disk(spec, volume) || slices.ContainsFunc(out, same) {
			continue
		}
		disk := diskOf(spec, volume.Name)
		out = append(out, Volume{Name: volume.Name, Claim: claim, CDROM: disk.CDRom != nil})
		order[volume.Name] = ^uint(0)
		if disk.BootOrder != nil {
			order[volume.Name] = *disk.BootOrder
		}
	}
	slices.SortStableFunc(out, func(a, b Volume) int { return cmp.Compare(order[a.Name], order[b.Name]) })
	return out
}

// diskOf returns the disk of a volume; one that the spec does not list has nothing of its own.
func diskOf(spec *v1.VirtualMachineInstanceSpec, volume string) v1.Disk {
	for i := range spec.Domain.Devices.Disks {
		if disk := &spec.Domain.Devices.Disks[i]; disk.Name == volume {
			return *disk
		}
	}
	return v1.Disk{Name: volume}
}

// NotIncluded says what a VM has of which an OVA with these volumes says nothing.
func NotIncluded(spec *v1.VirtualMachineInstanceSpec, volumes []Volume) []string {
	var out []string
	for i := range spec.Volumes {
		name := spec.Volumes[i].Name
		if !slices.ContainsFunc(volumes, func(v Volume) bool { return v.Name == name }) {
			out = append(out, "volume "+name+", which is no disk on a claim of the export")
		}
	}
	devices := &spec.Domain.Devices
	if devices.TPM != nil {
		out = append(out, "its TPM")
	}
	for _, gpu := range devices.GPUs {
		out = append(out, "GPU "+gpu.Name)
	}
	for _, host := range devices.HostDevices {
		out = append(out, "host device "+host.Name)
	}
	if devices.Watchdog != nil {
		out = append(out, "its watchdog")
	}
	if devices.Sound != nil {
		out = append(out, "its sound card")
	}
	return out
}

// Sum is the SHA-256 checksum of a file, hexadecimal.
type Sum struct{ File, SHA256 string }

// Manifest returns the manifest of an OVA.
func Manifest(sums []Sum) []byte {
	var out strings.Builder
	for _, sum := range sums {
		fmt.Fprintf(&out, "SHA256(%s)= %s\n", sum.File, sum.SHA256)
	}
	return []byte(out.String())
}

// Describe returns the descriptor of a VM, whose instance type and preference are written out, with these disks. macs
// are addresses of interfaces for which the spec has none, by their names.
func Describe(vm *v1.VirtualMachine, disks []Disk, macs map[string]string) ([]byte, error) {
	spec := &vm.Spec.Template.Spec
	d := &description{spec: spec, macs: macs}
	e := envelope{
		XMLNS: nsOVF, OVF: nsOVF, RASD: nsRASD, VSSD: nsVSSD, VMW: nsVMW, Virtkit: Namespace, Lang: "en-US",
		Disks: diskSection{Info: "The disks"}, Networks: networkSection{Info: "The networks"},
		System: system{
			ID: vm.Name, Info: "A virtual machine", Name: vm.Name,
			OS: osOf(vm),
			Hardware: hardware{
				Info: "Its hardware",
				System: systemItem{
					ElementName: "Virtual Hardware Family", InstanceID: 0, Identifier: vm.Name, Type: hardwareFamily,
				},
			},
		},
	}
	d.processor()
	d.drives(&e, disks)
	d.interfaces(&e)
	d.firmware(&e)
	e.System.Hardware.Items = d.items
	text, err := xml.MarshalIndent(e, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("describe the VM as OVF: %w", err)
	}
	return append([]byte(xml.Header), append(text, '\n')...), nil
}

// description is a descriptor that is being made.
type description struct {
	spec  *v1.VirtualMachineInstanceSpec
	macs  map[string]string
	items []item
}

// add adds an item, and returns its number.
func (d *description) add(i item) int {
	i.InstanceID = len(d.items) + 1
	i.Caption = cmp.Or(i.Caption, i.ElementName)
	d.items = append(d.items, i)
	return i.InstanceID
}

func (d *description) processor() {
	of := &d.spec.Domain
	cpu := item{
		AllocationUnits: "hertz * 10^6", Description: "Number of virtual CPUs", Type: typeCPU,
		Quantity: int64(sizing.VCPUs(of)),
	}
	cpu.ElementName = fmt.Sprintf("%d virtual CPU(s)", cpu.Quantity)
	if per := sizing.PerSocket(of); per > 1 {
		cpu.CoresPerSocket = &vendor{Text: fmt.Sprint(per)}
	}
	d.add(cpu)
	memory, known := sizing.Memory(of)
	if !known {
		return // which admission refuses
	}
	const mebibyte = 1 << 20
	size := (memory.Value() + mebibyte - 1) / mebibyte
	d.add(item{
		AllocationUnits: "byte * 2^20", Description: "Memory Size", Type: typeMemory, Quantity: size,
		ElementName: fmt.Sprintf("%dMB of memory", size),
	})
}

const (
	// perIDE is how many drives a controller has, of which there are as many; perSATA is a SATA controller's.
	perIDE, perSATA = 2, 30
)

// drives adds the disks: to IDE controllers, which each hypervisor and each guest knows, or to SATA ones where there
// are more than these take.
func (d *description) drives(e *envelope, disks []Disk) {
	per, controller := perIDE, item{Description: "IDE Controller", Type: typeIDE}
	if len(disks) > perIDE*perIDE {
		per, controller = perSATA, item{Description: "SATA Controller", Type: typeSATA, SubType: "vmware.sata.ahci"}
	}
	parent := 0
	for i := range disks {
		disk, of := &disks[i], diskOf(d.spec, disks[i].Volume)
		if i%per == 0 {
			controller.Address = fmt.Sprint(i / per)
			controller.ElementName = fmt.Sprintf("%s %d", controller.Description, i/per)
			controller.Caption = fmt.Sprintf("%s%d", map[string]string{
				typeIDE: "ideController", typeSATA: "sataController",
			}[controller.Type], i/per)
			parent = d.add(controller)
		}
		id := fmt.Sprintf("file%d", i+1)
		e.Files.Files = append(e.Files.Files, file{ID: id, Href: disk.File, Size: disk.Bytes})
		drive := item{
			AddressOnParent: fmt.Sprint(i % per), ElementName: disk.Volume, Parent: fmt.Sprint(parent),
		}
		if of.CDRom != nil {
			drive.Type, drive.Description, drive.HostResource = typeCD, "CD-ROM Drive", "ovf:/file/"+id
			d.add(drive)
			continue
		}
		vmdisk := fmt.Sprintf("vmdisk%d", i+1)
		e.Disks.Disks = append(e.Disks.Disks, diskEntry{
			ID: vmdisk, File: id, Capacity: disk.Capacity, Units: "byte", Format: FormatVMDK,
		})
		drive.Type, drive.Description, drive.HostResource = typeDisk, "Disk Image", "ovf:/disk/"+vmdisk
		drive.Bus = &vendor{Text: string(domain.Bus(&of))}
		d.add(drive)
	}
}
