package macaddress

import (
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/addresses"
)

// Claim is a MAC address on a network that a VM has, whether it runs or not.
type Claim struct {
	// Interface is the interface's name, Index its place in the spec; MAC is as Normal writes it.
	Interface string
	Index     int
	MAC       string
	// Network is NAMESPACE/NAME of a NetworkAttachmentDefinition, or PodNetwork.
	Network string
	// Explicit says that the address is in the spec.
	Explicit bool
	// Shared says that others on the network receive frames with the address: it is not translated in the guest's pod.
	Shared bool
}

// PodNetwork is the Network of claims on the cluster's own.
const PodNetwork = "pod network"

// Key is the same for claims that exclude each other.
func (c *Claim) Key() string { return c.MAC + " " + c.Network }

// OfVM returns the claims of a VM: its spec's addresses and the recorded ones.
func OfVM(vm *v1.VirtualMachine) []Claim {
	if vm.Spec.Template == nil {
		return nil
	}
	return claims(vm.Namespace, &vm.Spec.Template.Spec, Recorded(vm))
}

// OfVMI returns the claims of a VMI: its spec's addresses, the recorded ones, and those that its guest has.
func OfVMI(vmi *v1.VirtualMachineInstance) []Claim {
	macs := map[string]string{}
	for name, mac := range Recorded(vmi) {
		macs[name] = mac
	}
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		name := vmi.Spec.Domain.Devices.Interfaces[i].Name
		if has := Running(vmi, name); has != "" {
			macs[name] = has
		}
	}
	return claims(vmi.Namespace, &vmi.Spec, macs)
}

func claims(namespace string, spec *v1.VirtualMachineInstanceSpec, macs map[string]string) (out []Claim) {
	interfaces, networks := Interfaces(spec)
	for i := range interfaces {
		nic := &interfaces[i]
		mac := nic.MacAddress
		if mac == "" {
			mac = macs[nic.Name]
		}
		if mac == "" || nic.State == v1.InterfaceStateAbsent {
			continue
		}
		out = append(out, Claim{
			Interface: nic.Name, Index: i, MAC: Normal(mac), Network: Network(namespace, networks[nic.Name]),
			Explicit: nic.MacAddress != "",
			Shared:   nic.Masquerade == nil && !plain(nic) || onMultus(networks[nic.Name]),
		})
	}
	return out
}

// Network returns what tells a network from others: NAMESPACE/NAME of its NetworkAttachmentDefinition, or PodNetwork.
func Network(namespace string, n *v1.Network) string {
	if !onMultus(n) {
		return PodNetwork
	}
	if strings.Contains(n.Multus.NetworkName, "/") {
		return n.Multus.NetworkName
	}
	return namespace + "/" + n.Multus.NetworkName
}

func onMultus(n *v1.Network) bool { return n != nil && n.Multus != nil }

// Added returns the claims that are not among those before: an address that stays is nobody's concern.
func Added(claims, before []Claim) []Claim { return addresses.Added(claims, before, (*Claim).Key) }

// Taken returns how an interface's address is refused that another VM or VMI, KIND NAMESPACE/NAME, has at an interface.
func (c *Claim) Taken(holder, nic string) string {
	on := "on network " + c.Network
	if c.Network == PodNetwork {
		on = "on the pod network"
	}
	return fmt.Sprintf("%s is the MAC address of %s, interface %s, %s; leave macAddress out to get one that nobody "+
		"has, or give another", c.MAC, holder, nic, on)
}
