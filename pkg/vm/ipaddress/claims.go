package ipaddress

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/addresses"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// Claim is an IP address on a network of Multus that a VM has, whether it runs or not.
type Claim struct {
	// Interface is the interface's name.
	Interface string
	Address   netip.Addr
	// Network is NAMESPACE/NAME of a NetworkAttachmentDefinition.
	Network string
	// Wished says that the address is in the annotation Wish, and not in Annotation.
	Wished bool
}

// Key is the same for claims that exclude each other.
func (c *Claim) Key() string { return c.Address.String() + " " + c.Network }

// OfVM returns the claims of a VM: the addresses that it is wished to have, and the recorded ones.
func OfVM(vm *v1.VirtualMachine) []Claim {
	if vm.Spec.Template == nil {
		return nil
	}
	return claims(vm, vm.Spec.Template.ObjectMeta.Annotations, &vm.Spec.Template.Spec)
}

// OfVMI returns the claims of a VMI. An interface that waits for the migration to another network has what is recorded
// on the one that its guest is on.
func OfVMI(vmi *v1.VirtualMachineInstance) []Claim {
	out := claims(vmi, vmi.Annotations, &vmi.Spec)
	recorded := Recorded(vmi)
	each(vmi.Namespace, &vmi.Spec, func(nic *v1.Interface, _ *v1.Network, network string) {
		if there := recorded[nic.Name]; there.Network != network {
			for _, a := range merge(nil, there, there.Network) {
				out = append(out, Claim{Interface: nic.Name, Address: a.Addr, Network: there.Network})
			}
		}
	})
	return out
}

func claims(
	object metav1.Object, wishes map[string]string, spec *v1.VirtualMachineInstanceSpec,
) (out []Claim) {
	recorded := Recorded(object)
	if len(recorded) == 0 && wishes[Wish] == "" {
		return nil
	}
	interfaces, networks := macaddress.Interfaces(spec)
	for i := range interfaces {
		nic, n := &interfaces[i], networks[interfaces[i].Name]
		if n == nil || n.Multus == nil || n.Multus.Default || nic.State == v1.InterfaceStateAbsent {
			continue // addresses of the pod network are not given by name
		}
		network, wished := macaddress.Network(object.GetNamespace(), n), Wished(wishes, nic.Name)
		for at, a := range merge(wished, recorded[nic.Name], network) {
			out = append(out, Claim{
				Interface: nic.Name, Address: a.Addr, Network: network, Wished: at < len(wished),
			})
		}
	}
	return out
}

// Added returns the claims that are not among those before: an address that stays is nobody's concern.
func Added(claims, before []Claim) []Claim { return addresses.Added(claims, before, (*Claim).Key) }

// Taken returns how an interface's address is refused that another VM or VMI, KIND NAMESPACE/NAME, has at an interface.
func (c *Claim) Taken(holder, nic string) string {
	where := "leave it out of the annotation " + Wish + " to get one that is free, or give another"
	if !c.Wished {
		where = "remove the annotation " + Annotation + " to get one that is free"
	}
	return fmt.Sprintf("%s is the IP address of %s, interface %s, on network %s; %s", c.Address, holder, nic,
		c.Network, where)
}
