package network

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// Plugins are the installation's network binding plugins by name.
type Plugins map[string]v1.InterfaceBindingPlugin

// Names returns the names of the plugins, in order, for messages.
func (p Plugins) Names() string {
	if len(p) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(p)), ", ")
}

// used returns the plugins of a VMI's interfaces with the names of their networks, in the order of the VMI.
func (p Plugins) used(vmi *v1.VirtualMachineInstance) (plugins []v1.InterfaceBindingPlugin, networks []string) {
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if nic.Binding == nil || nic.State == v1.InterfaceStateAbsent {
			continue
		}
		if plugin, ok := p[nic.Binding.Name]; ok {
			plugins, networks = append(plugins, plugin), append(networks, nic.Name)
		}
	}
	return plugins, networks
}

// selections returns the networks by which the CNI plugins of a VMI's binding plugins are called for its pod. As
// KubeVirt's, they have no link; an argument names the network that they are to change.
func (p Plugins) selections(vmi *v1.VirtualMachineInstance) []selection {
	var out []selection
	plugins, networks := p.used(vmi)
	for i, plugin := range plugins {
		if plugin.NetworkAttachmentDefinition == "" {
			continue
		}
		namespace, name := definition(vmi.Namespace, plugin.NetworkAttachmentDefinition)
		out = append(out,
			selection{Name: name, Namespace: namespace, Arguments: map[string]any{"logicNetworkName": networks[i]}})
	}
	return out
}

// plugin connects an interface as its binding plugin says.
func (nic *Interface) plugin(vmi *v1.VirtualMachineInstance, spec v1.Interface, pod Pod, link Link) error {
	plugin, ok := pod.Plugins[spec.Binding.Name]
	if !ok {
		return fmt.Errorf("binding.name %q is not among the network binding plugins of this installation (%s); an "+
			"administrator can add it to spec.configuration.network.binding of the KubeVirt resource",
			spec.Binding.Name, pod.Plugins.Names())
	}
	nic.Stays = plugin.Migration == nil && link.Name == PodLink
	var err error
	if nic.MAC, err = macAddress(spec.MacAddress, knownMAC(vmi, spec.Name, link.MAC)); err != nil {
		return err
	}
	switch plugin.DomainAttachmentType {
	case v1.ManagedTap:
		nic.Binding = Bridge // whoever has the address to give is on the network
		return nil
	case v1.Tap:
		nic.Binding, nic.BridgeLink = Tap, ""
		for _, name := range []string{nic.Tap, link.Name} {
			if slices.ContainsFunc(pod.Links, func(l Link) bool { return l.Name == name && l.Tap }) {
				nic.Tap = name
				return nil
			}
		}
		return fmt.Errorf("binding plugin %q: the CNI plugin has made no tap in the pod: neither %s nor %s is one",
			spec.Binding.Name, nic.Tap, link.Name)
	}
	return fmt.Errorf("binding plugin %q has no domainAttachmentType that virtkit can do (tap or managedTap)",
		spec.Binding.Name)
}

// Overhead returns the memory in bytes that a pod needs for the plugins of its VMI, each counted once.
func (p Plugins) Overhead(vmi *v1.VirtualMachineInstance) int64 {
	var sum int64
	seen := map[string]bool{}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if nic.Binding == nil || seen[nic.Binding.Name] {
			continue
		}
		seen[nic.Binding.Name] = true
		if overhead := p[nic.Binding.Name].ComputeResourceOverhead; overhead != nil {
			sum += overhead.Requests.Memory().Value()
		}
	}
	return sum
}
