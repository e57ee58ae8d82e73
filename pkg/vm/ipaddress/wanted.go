package ipaddress

import (
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// Got is what a pod has got of a network.
type Got struct {
	// Addresses are those of the interface's link, as Multus reports them; nil while it has not.
	Addresses []string
	// Kept says that they are to be recorded (PodAnnotation).
	Kept bool
}

// Names returns the value of PodAnnotation for interfaces.
func Names(interfaces []string) string { return strings.Join(interfaces, ",") }

// Named reports whether a value of PodAnnotation names an interface.
func Named(value, name string) bool { return slices.Contains(strings.Split(value, ","), name) }

// Wanted returns the record of a VM as it should be, by the interface's name: what the guest's pod has got, or else
// what is recorded. The VMI may be nil, and so may got, while the guest has no pod. A guest that has moved keeps what
// it began with, whatever its new pod got.
func Wanted(
	vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, got func(nic *v1.Interface, n *v1.Network) Got,
) map[string]Given {
	if vm.Spec.Template == nil {
		return nil
	}
	recorded, out := Recorded(vm), map[string]Given{}
	interfaces, networks := macaddress.Interfaces(&vm.Spec.Template.Spec)
	for i := range interfaces {
		nic, n := &interfaces[i], networks[interfaces[i].Name]
		if n == nil || n.Multus == nil || n.Multus.Default {
			continue
		}
		network := macaddress.Network(vm.Namespace, n)
		given, has := recorded[nic.Name]
		has = has && given.Network == network && len(given.Addresses) > 0
		if got != nil && connected(vmi, nic.Name, network) {
			here := got(nic, n)
			began, moves := Recorded(vmi)[nic.Name], vmi.Status.MigrationState != nil
			switch {
			case !here.Kept:
				has = false
			case moves && began.Network == network && len(began.Addresses) > 0:
				given, has = began, true
			case len(here.Addresses) > 0 && Given{Addresses: here.Addresses}.check() == nil:
				given, has = Given{Network: network, Addresses: here.Addresses}, true
			}
		}
		if has {
			out[nic.Name] = given
		}
	}
	return out
}

// connected reports whether an interface of a VMI is on a network.
func connected(vmi *v1.VirtualMachineInstance, name, network string) bool {
	if vmi == nil {
		return false
	}
	interfaces, networks := macaddress.Interfaces(&vmi.Spec)
	return slices.ContainsFunc(interfaces, func(nic v1.Interface) bool {
		n := networks[nic.Name]
		return nic.Name == name && nic.State != v1.InterfaceStateAbsent && n != nil &&
			macaddress.Network(vmi.Namespace, n) == network
	})
}

// Equal reports whether two records say the same.
func Equal(a, b map[string]Given) bool {
	if len(a) != len(b) {
		return false
	}
	for name, given := range a {
		other, ok := b[name]
		if !ok || other.Network != given.Network || !slices.Equal(other.Addresses, given.Addresses) {
			return false
		}
	}
	return true
}
