package network

import (
	"errors"
	"net"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// AnnotationResource of a NetworkAttachmentDefinition is the extended resource that a pod on its network needs one of:
// that of the virtual functions of a network card, for example. It is the Network Plumbing Working Group's.
const AnnotationResource = "k8s.v1.cni.cncf.io/resourceName"

// DeviceInfo is a CNI plugin's description of the device behind a link.
type DeviceInfo struct {
	Type string `json:"type,omitempty"`
	PCI  struct {
		Address string `json:"pci-address,omitempty"`
	} `json:"pci"`
}

// passed returns the plan of an interface that is a function of the node's network card (SR-IOV): the guest has the
// device itself, so that there is nothing to make in the pod. Its address may be unknown here, where the CNI plugin has
// not reported to Multus.
func passed(vmi *v1.VirtualMachineInstance, spec v1.Interface, n v1.Network, pod Pod) (Interface, error) {
	if n.Multus == nil {
		return Interface{}, errors.New("sriov is for networks of Multus; set masquerade: {}")
	}
	nic := Interface{Name: spec.Name, Binding: SRIOV, PodLink: LinkOf(n), MAC: strings.ToLower(spec.MacAddress)}
	for _, a := range pod.Attachments {
		if a.Interface != nic.PodLink {
			continue
		}
		if a.DeviceInfo != nil {
			nic.PCI = a.DeviceInfo.PCI.Address
		}
		if mac, err := net.ParseMAC(a.MAC); nic.MAC == "" && err == nil {
			nic.MAC = mac.String()
		}
		return nic, nil
	}
	namespace, name := definition(vmi.Namespace, n.Multus.NetworkName)
	return Interface{}, missing(n.Name, namespace+"/"+name, pod.Multus)
}

// Definitions returns the NetworkAttachmentDefinitions of a VMI's networks, NAMESPACE and NAME by the network's name;
// networks of interfaces that are absent are left out.
func Definitions(vmi *v1.VirtualMachineInstance) map[string][2]string {
	absent := map[string]bool{}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		absent[nic.Name] = nic.State == v1.InterfaceStateAbsent
	}
	out := map[string][2]string{}
	for _, n := range vmi.Spec.Networks {
		if n.Multus != nil && !absent[n.Name] {
			namespace, name := definition(vmi.Namespace, n.Multus.NetworkName)
			out[n.Name] = [2]string{namespace, name}
		}
	}
	return out
}
