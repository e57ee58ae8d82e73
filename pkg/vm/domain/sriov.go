package domain

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/pci"
)

// networkFunctions returns the functions of the node's network cards for the guest's interfaces with sriov, in
// the VMI's order. Which is whose Multus says, by the network plan; where it does not, the pod's are given out in the
// order of the device plugin's.
func networkFunctions(vmi *v1.VirtualMachineInstance, facts Facts) ([]libvirtxml.DomainHostdev, error) {
	_, addresses, err := Addresses(&vmi.Spec)
	if err != nil {
		return nil, err
	}
	var out []libvirtxml.DomainHostdev
	taken := map[pci.Address]string{}
	given := map[string]int{} // by resource
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		nic := &vmi.Spec.Domain.Devices.Interfaces[i]
		if nic.SRIOV == nil || nic.State == v1.InterfaceStateAbsent {
			continue
		}
		path := "spec.domain.devices.interfaces[" + itoa(i) + "]"
		p := slices.IndexFunc(facts.Network.Interfaces, func(n network.Interface) bool { return n.Name == nic.Name })
		if p < 0 {
			return nil, field(path, "interface %q is not in the network plan", nic.Name)
		}
		text := facts.Network.Interfaces[p].PCI
		if text == "" {
			if text, err = functionOf(nic.Name, path, given, facts.PluginVariables); err != nil {
				return nil, err
			}
		}
		device, err := pci.Parse(text)
		if err != nil {
			return nil, field(path, "the function of the network card: %w", err)
		}
		if other, ok := taken[device]; ok {
			return nil, field(path, "the function %s of the network card is that of interface %q, too", device, other)
		}
		taken[device] = nic.Name
		x := pciHostdev(device, aliasPrefix+"sriov-"+nic.Name)
		if a, ok := addresses[nic.Name]; ok {
			x.Address = address(a)
		}
		if nic.BootOrder != nil {
			x.Boot = &libvirtxml.DomainDeviceBoot{Order: narrow(*nic.BootOrder)}
		}
		if nic.ACPIIndex > 0 {
			x.ACPI = &libvirtxml.DomainDeviceACPI{Index: uint(nic.ACPIIndex)}
		}
		out = append(out, x)
	}
	return out, nil
}

// functionOf returns the next of the functions that the device plugin of a network's resource gave the pod.
func functionOf(name, path string, given map[string]int, variables map[string]string) (string, error) {
	resource := variables[passthrough.NetworkResource(name)]
	if resource == "" {
		return "", field(path, "neither Multus nor the pod says which function of a network card interface %q is; "+
			"restart the VM", name)
	}
	variable := passthrough.Variable(passthrough.NetworkPCI, resource)
	devices := passthrough.Devices(variables[variable])
	n := given[resource]
	if n >= len(devices) {
		return "", field(path, "the device plugin of resource %s gave the pod %d functions of network cards, and "+
			"more are needed: %s=%q", resource, len(devices), variable, variables[variable])
	}
	given[resource]++
	return devices[n], nil
}
