package ipaddress

import (
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// Got is what a pod has got of a network.
type Got struct {
	// Network is NAMESPACE/NAME of the NetworkAttachmentDefinition that the pod asked for; "" when for none.
	Network string
	// Addresses are those of the interface's link, as Multus reports them; nil while it has not.
	Addresses []string
	// Kept says that they are to be recorded (PodAnnotation).
	Kept bool
}

// Names returns the value of PodAnnotation for interfaces.
func Names(interfaces []string) string { return strings.Join(interfaces, ",") }

// Named reports whether a value of PodAnnotation names an interface.
func Named(value, name string) bool { return slices.Contains(strings.Split(value, ","), name) }

// Held returns the record of a VMI as it should be, by the interface's name: what the pod of its guest has got, on the
// network that this pod is on. A guest that has moved keeps what it began with there, whatever its new pod got.
func Held(vmi *v1.VirtualMachineInstance, got func(nic *v1.Interface, n *v1.Network) Got) map[string]Given {
	recorded, out := Recorded(vmi), map[string]Given{}
	moved := vmi.Status.MigrationState != nil
	each(vmi.Namespace, &vmi.Spec, func(nic *v1.Interface, n *v1.Network, _ string) {
		here, began := got(nic, n), recorded[nic.Name]
		has := len(began.Addresses) > 0 && (here.Network == "" || here.Network == began.Network)
		now := Given{Network: here.Network, Addresses: here.Addresses}
		switch {
		case here.Network != "" && !here.Kept:
			return
		case has && moved:
		case here.Network != "" && len(here.Addresses) > 0 && now.check() == nil:
			began, has = now, true
		}
		if has {
			out[nic.Name] = began
		}
	})
	return out
}

// Wanted returns the record of a VM as it should be, by the interface's name: what the record of its VMI should be,
// held, for the interfaces whose networks the guest's pod is on, and what is recorded for others. got may be nil, while
// the guest has no pod. An interface that has gone to another network in the VM has no record for that until its guest
// is there.
func Wanted(
	vm *v1.VirtualMachine, held map[string]Given, got func(nic *v1.Interface, n *v1.Network) Got,
) map[string]Given {
	if vm.Spec.Template == nil {
		return nil
	}
	recorded, out := Recorded(vm), map[string]Given{}
	each(vm.Namespace, &vm.Spec.Template.Spec, func(nic *v1.Interface, n *v1.Network, network string) {
		given := recorded[nic.Name]
		if now := held[nic.Name]; now.Network == network {
			given = now
		} else if got != nil {
			if here := got(nic, n); here.Network == network && !here.Kept {
				return
			}
		}
		if given.Network == network && len(given.Addresses) > 0 {
			out[nic.Name] = given
		}
	})
	return out
}

// each calls do for the interfaces on networks of Multus besides the pod's first, with the network as NAMESPACE/NAME.
func each(
	namespace string, spec *v1.VirtualMachineInstanceSpec, do func(nic *v1.Interface, n *v1.Network, network string),
) {
	interfaces, networks := macaddress.Interfaces(spec)
	for i := range interfaces {
		nic, n := &interfaces[i], networks[interfaces[i].Name]
		if n == nil || n.Multus == nil || n.Multus.Default {
			continue
		}
		do(nic, n, macaddress.Network(namespace, n))
	}
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
