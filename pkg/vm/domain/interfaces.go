package domain

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/pci"
)

// InterfaceAlias returns the alias of an interface in the domain.
func InterfaceAlias(name string) string { return aliasPrefix + name }

// interfaces returns the guest's NICs in the VMI's order, each on the tap that the network plan has for it. libvirt is
// to leave the tap alone: it exists, and the pod may not change it.
func interfaces(vmi *v1.VirtualMachineInstance, facts Facts) ([]libvirtxml.DomainInterface, error) {
	planned := make(map[string]*network.Interface, len(facts.Network.Interfaces))
	for i := range facts.Network.Interfaces {
		planned[facts.Network.Interfaces[i].Name] = &facts.Network.Interfaces[i]
	}
	_, addresses, err := Addresses(&vmi.Spec)
	if err != nil {
		return nil, err
	}
	var out []libvirtxml.DomainInterface
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		nic := &vmi.Spec.Domain.Devices.Interfaces[i]
		if nic.State == v1.InterfaceStateAbsent || nic.SRIOV != nil { // the latter are host devices
			continue
		}
		p := planned[nic.Name]
		if p == nil {
			return nil, field("spec.domain.devices.interfaces["+itoa(i)+"]",
				"interface %q is not in the network plan", nic.Name)
		}
		x := networkCard(nic, p)
		if a, ok := addresses[nic.Name]; ok {
			x.Address = address(a)
		}
		out = append(out, x)
	}
	return out, nil
}

// networkCard returns a NIC on the tap of the plan, without its address.
func networkCard(nic *v1.Interface, p *network.Interface) libvirtxml.DomainInterface {
	model := nic.Model
	if model == "" {
		model = v1.VirtIO
	}
	x := libvirtxml.DomainInterface{
		MAC:    &libvirtxml.DomainInterfaceMAC{Address: p.MAC},
		Source: &libvirtxml.DomainInterfaceSource{Ethernet: &libvirtxml.DomainInterfaceSourceEthernet{}},
		Target: &libvirtxml.DomainInterfaceTarget{Dev: p.Tap, Managed: "no"},
		Model:  &libvirtxml.DomainInterfaceModel{Type: model},
		Alias:  &libvirtxml.DomainAlias{Name: InterfaceAlias(nic.Name)},
	}
	if p.MTU > 0 && model == v1.VirtIO {
		x.MTU = &libvirtxml.DomainInterfaceMTU{Size: uint(p.MTU)}
	}
	if nic.State == v1.InterfaceStateLinkDown {
		x.Link = &libvirtxml.DomainInterfaceLink{State: "down"}
	}
	if nic.ACPIIndex > 0 {
		x.ACPI = &libvirtxml.DomainDeviceACPI{Index: uint(nic.ACPIIndex)}
	}
	if p.Queues > 1 {
		x.Driver = &libvirtxml.DomainInterfaceDriver{Queues: p.Queues}
	}
	// The option ROM is only for booting from the network, and costs time at each boot.
	if nic.BootOrder != nil {
		x.Boot = &libvirtxml.DomainDeviceBoot{Order: narrow(*nic.BootOrder)}
	} else {
		x.ROM = &libvirtxml.DomainROM{Enabled: "no"}
	}
	return x
}

// PluggedInterface returns the NIC of an interface for a guest that runs. plan has its tap.
func PluggedInterface(
	vmi *v1.VirtualMachineInstance, plan network.Plan, name string,
) (*libvirtxml.DomainInterface, error) {
	path := "interface " + name
	spec := vmi.Spec.Domain.Devices.Interfaces
	i := slices.IndexFunc(spec, func(n v1.Interface) bool { return n.Name == name })
	p := slices.IndexFunc(plan.Interfaces, func(n network.Interface) bool { return n.Name == name })
	if i < 0 || p < 0 {
		return nil, field(path, "it is not in the network plan")
	}
	x := networkCard(&spec[i], &plan.Interfaces[p])
	// The devices that are there have their places: only one that was asked for is given.
	if text := spec[i].PciAddress; text != "" {
		a, err := pci.Parse(text)
		if err != nil {
			return nil, field(path+".pciAddress", "%w", err)
		}
		x.Address = address(a)
	}
	if enabled(vmi.Spec.Domain.Devices.UseVirtioTransitional, false) && x.Model.Type == v1.VirtIO {
		x.Model.Type = transitionalModel
	}
	if passthrough.SEV(&vmi.Spec.Domain) {
		cardBehindIOMMU(&x)
	}
	return &x, nil
}
