// Package macaddress says which MAC address an interface of a guest has, so that it stays, and which VM it belongs to.
//
// A spec may say it (macAddress). Otherwise a VM has the addresses that are recorded in its annotation Annotation, in
// which virt-controller writes them before the VM starts for the first time, and from then on as its guest has them.
// The spec stays as its author wrote it: what applies a manifest again, as GitOps does, finds no difference. The VMI
// gets the record from its VM. The package is pure; virt-api, virt-controller, virt-handler, virt-launcher and virtctl
// ask it.
package macaddress

import (
	"crypto/sha256"
	"fmt"
	"net"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/addresses"
)

// Annotation is on a VM and its VMI: the MAC addresses of the interfaces for which the spec has none; a Record as JSON.
const Annotation = "virtkit.io/mac-addresses"

const example = `{"vm":"NAMESPACE/NAME","interfaces":{"INTERFACE":"02:12:34:56:78:9a"}}`

// Record is what Annotation holds.
type Record = addresses.Record[string]

var kind = addresses.Kind[string]{Annotation: Annotation, Example: example, Check: Check}

// Encode returns the value of Annotation for a VM.
func Encode(namespace, name string, macs map[string]string) (string, error) {
	return kind.Encode(namespace, name, macs)
}

// Decode reads a value of Annotation. An error says what is wrong with it.
func Decode(text string) (Record, error) { return kind.Decode(text) }

// Recorded returns the addresses that a VM's or VMI's annotation has for it, by the interface's name. A record of
// another VM, and one that cannot be read, which admission refuses, count as none.
func Recorded(object metav1.Object) map[string]string { return kind.Recorded(object) }

// Move gives a VM that takes the place of another the addresses that are recorded in its annotation, which it has from
// that one. from is NAMESPACE/NAME of it, or empty where that is known. A record of another, and one that cannot be
// read, is removed.
func Move(vm *v1.VirtualMachine, from string) error { return kind.Move(vm, from) }

// Check returns why a text is not the MAC address of an interface; nil if it is one.
func Check(text string) error {
	mac, err := net.ParseMAC(text)
	switch {
	case err != nil || len(mac) != 6:
		return fmt.Errorf("%q is not an Ethernet address such as 02:12:34:56:78:9a", text)
	case mac.String() == "00:00:00:00:00:00":
		return fmt.Errorf("%q is the address of no interface; give another, or leave it out to get one", text)
	case mac[0]&1 != 0:
		return fmt.Errorf("%q is not the address of one interface; the second digit must be even", text)
	}
	return nil
}

// Normal returns a MAC address as the records have it, in lower case with colons; what is none is returned as it is.
func Normal(text string) string {
	if mac, err := net.ParseMAC(text); err == nil {
		return mac.String()
	}
	return text
}

// Stable returns an address made of a UID and a name: always the same, locally administered, and different between
// UIDs.
func Stable(uid, name string) string {
	sum := sha256.Sum256([]byte(uid + "/" + name))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
}

// OfInterface returns the address that an interface of a VMI is to have: its spec's, the recorded one, or "".
func OfInterface(vmi *v1.VirtualMachineInstance, nic *v1.Interface) string {
	if nic.MacAddress != "" {
		return nic.MacAddress
	}
	return Recorded(vmi)[nic.Name]
}

// Running returns the address that the guest of a VMI has at an interface, "" while that is not known.
func Running(vmi *v1.VirtualMachineInstance, name string) string {
	for _, s := range vmi.Status.Interfaces {
		if s.Name == name {
			return s.MAC
		}
	}
	return ""
}

// Obstacle returns why an interface without an address in its spec has another one after each start, or "" when it
// keeps it. The network may be nil, for the pod network.
func Obstacle(nic *v1.Interface, n *v1.Network) string {
	second := n != nil && n.Multus != nil && !n.Multus.Default
	switch {
	case nic.MacAddress != "" || nic.Masquerade != nil || second || plain(nic):
		return ""
	case nic.Binding != nil:
		return fmt.Sprintf("the pod network gives an interface with binding %s another MAC at each start",
			nic.Binding.Name)
	}
	return "the pod network gives an interface with bridge: {} another MAC at each start"
}

// plain reports whether an interface has no binding: on the pod network admission gives a VMI's masquerade.
func plain(nic *v1.Interface) bool {
	return nic.Binding == nil && nic.InterfaceBindingMethod == (v1.InterfaceBindingMethod{})
}

// Wanted returns the record of a VM as it should be: for each interface of its template that keeps its address and has
// none in its spec, the address that its running guest has, or else the recorded one, or one that is made of the VM's
// UID. The VMI may be nil.
func Wanted(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) map[string]string {
	if vm.Spec.Template == nil {
		return nil
	}
	recorded, out := Recorded(vm), map[string]string{}
	interfaces, networks := Interfaces(&vm.Spec.Template.Spec)
	for i := range interfaces {
		nic := &interfaces[i]
		if nic.MacAddress != "" || Obstacle(nic, networks[nic.Name]) != "" {
			continue
		}
		switch running, there := running(vmi, nic.Name), recorded[nic.Name]; {
		case running != "":
			out[nic.Name] = running
		case there != "":
			out[nic.Name] = Normal(there)
		default:
			out[nic.Name] = Stable(string(vm.UID), nic.Name)
		}
	}
	return out
}

// running returns the address of a guest's interface that was not given to it by its spec.
func running(vmi *v1.VirtualMachineInstance, name string) string {
	if vmi == nil {
		return ""
	}
	interfaces, networks := Interfaces(&vmi.Spec)
	for i := range interfaces {
		nic := &interfaces[i]
		if nic.Name == name && nic.MacAddress == "" && Obstacle(nic, networks[name]) == "" &&
			nic.State != v1.InterfaceStateAbsent {
			return strings.ToLower(Running(vmi, name))
		}
	}
	return ""
}

// Interfaces returns the interfaces of a spec and its networks by name. A spec that names none has the one on the pod
// network, unless it does not want that.
func Interfaces(spec *v1.VirtualMachineInstanceSpec) ([]v1.Interface, map[string]*v1.Network) {
	devices, networks := &spec.Domain.Devices, map[string]*v1.Network{}
	if len(devices.Interfaces) == 0 && len(spec.Networks) == 0 &&
		(devices.AutoattachPodInterface == nil || *devices.AutoattachPodInterface) {
		pod := v1.DefaultPodNetwork()
		return []v1.Interface{*v1.DefaultMasqueradeNetworkInterface()}, map[string]*v1.Network{pod.Name: pod}
	}
	for i := range spec.Networks {
		networks[spec.Networks[i].Name] = &spec.Networks[i]
	}
	return devices.Interfaces, networks
}
