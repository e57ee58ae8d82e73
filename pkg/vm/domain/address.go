package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/pci"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// Addresses returns the addresses of the disks and interfaces to which the VMI gives one, or a tag by which the guest
// finds where the device is (cloud-init's meta data): such a device has a root port of its own, in the order of the
// VMI. libvirt places all others.
func Addresses(spec *v1.VirtualMachineInstanceSpec) (disks, interfaces map[string]pci.Address, err error) {
	disks, interfaces = map[string]pci.Address{}, map[string]pci.Address{}
	taken := map[pci.Address]bool{}
	devices := &hotplug.Without(spec).Domain.Devices
	give := func(of map[string]pci.Address, name, text, path string) error {
		if text == "" {
			return nil
		}
		a, err := pci.Parse(text)
		if err != nil {
			return field(path+".pciAddress", "%w", err)
		}
		if taken[a] {
			return field(path+".pciAddress", "%s is another device's, too", a)
		}
		taken[a], of[name] = true, a
		return nil
	}
	for i := range devices.Disks {
		if d := &devices.Disks[i]; d.Disk != nil {
			if err := give(disks, d.Name, d.Disk.PciAddress, "spec.domain.devices.disks["+itoa(i)+"].disk"); err !=
				nil {
				return nil, nil, err
			}
		}
	}
	for i := range devices.Interfaces {
		nic := &devices.Interfaces[i]
		if nic.State == v1.InterfaceStateAbsent {
			continue
		}
		if err := give(interfaces, nic.Name, nic.PciAddress, "spec.domain.devices.interfaces["+itoa(i)+"]"); err !=
			nil {
			return nil, nil, err
		}
	}
	if !onPCIe(&spec.Domain) {
		return disks, interfaces, nil
	}
	next := func(of map[string]pci.Address, name string) {
		if _, ok := of[name]; ok {
			return
		}
		a := pci.Address{Bus: 1}
		for taken[a] {
			a.Bus++
		}
		taken[a], of[name] = true, a
	}
	for i := range devices.Disks {
		if d := &devices.Disks[i]; d.Tag != "" && Bus(d) == v1.DiskBusVirtio {
			next(disks, d.Name)
		}
	}
	for i := range devices.Interfaces {
		if nic := &devices.Interfaces[i]; nic.Tag != "" && nic.State != v1.InterfaceStateAbsent &&
			(nic.SRIOV != nil || nic.Model == "" || expressNIC(nic.Model)) {
			next(interfaces, nic.Name)
		}
	}
	return disks, interfaces, nil
}

// onPCIe reports whether virtio devices are PCIe devices, each behind a root port.
func onPCIe(spec *v1.DomainSpec) bool {
	return surface.IsQ35(machine(spec)) && !enabled(spec.Devices.UseVirtioTransitional, false)
}

func address(a pci.Address) *libvirtxml.DomainAddress {
	return &libvirtxml.DomainAddress{
		PCI: &libvirtxml.DomainAddressPCI{Domain: &a.Domain, Bus: &a.Bus, Slot: &a.Slot, Function: &a.Function},
	}
}

// Tagged is a device that the guest is to find by its tag.
type Tagged struct {
	Tag string
	// NIC is an interface, else a disk.
	NIC bool
	// Bus is pci, or the disk's bus where its controller is the PCI device.
	Bus string
	// Address is on PCI; nil where libvirt chooses it.
	Address *pci.Address
	// MAC is an interface's; empty where the pod's link decides it. Serial is a disk's.
	MAC, Serial string
}

// TaggedDevices returns the devices of the VMI that have a tag: interfaces, then disks.
func TaggedDevices(vmi *v1.VirtualMachineInstance) ([]Tagged, error) {
	disks, interfaces, err := Addresses(&vmi.Spec)
	if err != nil {
		return nil, err
	}
	var out []Tagged
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		nic := &vmi.Spec.Domain.Devices.Interfaces[i]
		if nic.Tag == "" || nic.State == v1.InterfaceStateAbsent {
			continue
		}
		t := Tagged{Tag: nic.Tag, NIC: true, Bus: "pci", MAC: nic.MacAddress}
		if t.MAC == "" && nic.Masquerade != nil {
			t.MAC = network.MasqueradeMAC(vmi, nic)
		}
		if a, ok := interfaces[nic.Name]; ok {
			t.Address = &a
		}
		out = append(out, t)
	}
	for i := range vmi.Spec.Domain.Devices.Disks {
		d := &vmi.Spec.Domain.Devices.Disks[i]
		if d.Tag == "" {
			continue
		}
		t := Tagged{Tag: d.Tag, Bus: string(Bus(d)), Serial: d.Serial}
		if a, ok := disks[d.Name]; ok {
			t.Bus, t.Address = "pci", &a
		}
		out = append(out, t)
	}
	return out, nil
}
