// Package passthrough has the rules for guests with devices of their node: which devices a VMI asks for, the variables
// in which a device plugin reports to the pod what it got, and what a guest whose devices access its memory by
// themselves (VFIO) needs besides. It is pure.
//
//	spec.domain.devices.{gpus,hostDevices} ─► Resources ─► the pod's requests ─► device plugin
//	                                                                              ─► Variable=… ─► pkg/vm/domain
package passthrough

import (
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// MappedSpace is the address space that a guest with VFIO locks beyond its memory: its devices'. Its pod also needs it
// beyond others. Bytes; KubeVirt's and libvirt's.
const MappedSpace = 1 << 30

// alignment is by how much libvirt may round the guest's memory up, bytes.
const alignment = 16 << 20

// VFIO reports whether a VMI has devices of its node that access its memory by themselves: all of it is locked. It
// counts devices on USB, too, since the spec does not say which these are; as KubeVirt.
func VFIO(spec *v1.VirtualMachineInstanceSpec) bool {
	return len(spec.Domain.Devices.GPUs) > 0 || len(spec.Domain.Devices.HostDevices) > 0 || SRIOV(spec)
}

// SRIOV reports whether a VMI has an interface that is a function of its node's network card.
func SRIOV(spec *v1.VirtualMachineInstanceSpec) bool {
	return slices.ContainsFunc(spec.Domain.Devices.Interfaces, func(nic v1.Interface) bool {
		return nic.SRIOV != nil && nic.State != v1.InterfaceStateAbsent
	})
}

// Locks reports whether QEMU may lock a VMI's memory: for devices of the node, since it is encrypted, or since
// memory.reservedOverhead.memLock says so.
func Locks(spec *v1.VirtualMachineInstanceSpec) bool {
	m := spec.Domain.Memory
	return VFIO(spec) || SEV(&spec.Domain) ||
		m != nil && m.ReservedOverhead != nil && m.ReservedOverhead.MemLock != nil &&
			*m.ReservedOverhead.MemLock == v1.MemLockRequired
}

// VSOCK reports whether a VMI's node reaches it over vsock.
func VSOCK(spec *v1.VirtualMachineInstanceSpec) bool {
	attach := spec.Domain.Devices.AutoattachVSOCK
	return attach != nil && *attach
}

// Resources returns the numbers of the extended resources that the pod needs for gpus and hostDevices; none for others.
// The networks of interfaces say theirs, elsewhere.
func Resources(spec *v1.VirtualMachineInstanceSpec) map[string]int64 {
	if !VFIO(spec) {
		return nil
	}
	out := map[string]int64{}
	for i := range spec.Domain.Devices.GPUs {
		out[spec.Domain.Devices.GPUs[i].DeviceName]++
	}
	for i := range spec.Domain.Devices.HostDevices {
		out[spec.Domain.Devices.HostDevices[i].DeviceName]++
	}
	return out
}

// Locked returns how much memory QEMU may lock for the VMI, as large as it may become, bytes.
func Locked(spec *v1.VirtualMachineInstanceSpec) uint64 {
	most := int64(0)
	if m := spec.Domain.Memory; m != nil {
		if m.Guest != nil {
			most = max(most, m.Guest.Value())
		}
		if m.MaxGuest != nil {
			most = max(most, m.MaxGuest.Value())
		}
	}
	beyond := int64(0)
	if m := spec.Domain.Memory; m != nil && m.ReservedOverhead != nil && m.ReservedOverhead.AddedOverhead != nil {
		beyond = max(0, m.ReservedOverhead.AddedOverhead.Value())
	}
	most = max(most, spec.Domain.Resources.Requests.Memory().Value(), spec.Domain.Resources.Limits.Memory().Value())
	return uint64(most) + uint64(beyond) + MappedSpace + alignment
}

// Prefixes of the variables in which a device plugin writes which devices a container got.
const (
	PCI  = v1.PCIResourcePrefix  // PCI addresses
	MDev = v1.MDevResourcePrefix // UUIDs of mediated devices
	USB  = v1.USBResourcePrefix  // BUS:DEVICE, decimal
	// NetworkPCI is the SR-IOV network device plugin's: PCI addresses.
	NetworkPCI = "PCIDEVICE"
)

// NetworkResource returns the variable in which virt-controller writes the resource of a network for the launcher:
// KubeVirt's.
func NetworkResource(network string) string { return networkResource + "_" + network }

const networkResource = "KUBEVIRT_RESOURCE_NAME"

var inVariable = strings.NewReplacer("/", "_", ".", "_")

// Variable returns the name of the environment variable that lists the devices of a resource, joined by commas:
// "PCI_RESOURCE_NVIDIA_COM_TU104GL".
func Variable(prefix, resource string) string {
	return prefix + "_" + inVariable.Replace(strings.ToUpper(resource))
}

// Environment picks the variables of device plugins, and those of NetworkResource, from an environment (NAME=VALUE);
// nil when there are none.
func Environment(environ []string) map[string]string {
	var out map[string]string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		for _, prefix := range []string{PCI, MDev, USB, NetworkPCI, networkResource} {
			if strings.HasPrefix(name, prefix+"_") {
				if out == nil {
					out = map[string]string{}
				}
				out[name] = value
			}
		}
	}
	return out
}

// Devices returns the devices that a variable lists.
func Devices(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
}
