package ipaddress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// Way is how an interface gets the same IP addresses at each start.
type Way string

const (
	// ByRequest asks for them by `ips` of Multus' network selection, which Multus passes to plugins that declare the
	// capability.
	ByRequest Way = "ips"
	// ByArgument asks by an argument in the CNI configuration, `cni-args` of the selection, where no capability is
	// declared.
	ByArgument Way = "cni-args"
	// ByDefinition needs no request: the definition has the addresses.
	ByDefinition Way = "definition"
	// ByClaim is OVN-Kubernetes' own, with an IPAMClaim that KubeVirt's ipam-controller makes for the VM.
	ByClaim Way = "ipam-claim"
)

// Keeping says whether an interface keeps the IP addresses that its network gives it.
type Keeping struct {
	// Network is NAMESPACE/NAME of the NetworkAttachmentDefinition.
	Network string
	// Way is how, "" when it does not.
	Way Way
	// Why is the reason why not, for a sentence that goes on after a colon. It is "" when it does, and where the
	// network gives no addresses that could be kept.
	Why string
	// Definition is what is known of the network, nil for nothing.
	Definition *Definition
	// Comes says that the guest is on another network yet, from which the pod's migration brings it to this one.
	Comes bool
}

// Keep returns whether and how an interface on a network keeps its IP addresses over starts. namespace is the VM's,
// wished says that its author wishes for addresses, and d is the network's definition, nil when there is none.
func Keep(namespace string, nic *v1.Interface, n *v1.Network, wished bool, d *Definition) Keeping {
	if n == nil || n.Multus == nil {
		return Keeping{
			Network: macaddress.PodNetwork,
			Why: "the pod network gives each pod an address of its own; a Service has one that stays, and " +
				"annotations of the pod network (Calico's, kube-ovn's) may go into spec.template.metadata.annotations",
		}
	}
	out := Keeping{Network: macaddress.Network(namespace, n), Definition: d}
	switch {
	case n.Multus.Default:
		out.Why = "Multus takes no wish for addresses on the pod's first network; use a network without default: true"
	case nic.SRIOV != nil && !wished:
	case nic.SRIOV != nil:
		out.Why = "a function of a network card (SR-IOV) has the addresses that are set in the guest"
	case d == nil:
		out.Why = "there is no NetworkAttachmentDefinition " + out.Network + " yet that would say so"
	default:
		out.Way, out.Why = d.keep(out.Network, wished)
	}
	return out
}

func (d *Definition) keep(network string, wished bool) (way Way, why string) {
	request := ByArgument
	if d.Takes {
		request = ByRequest
	}
	switch {
	case d.IPAM == static && !wished && len(d.Own) > 0:
		return ByDefinition, ""
	case d.IPAM == static && !wished:
		return "", "network " + network + " gives addresses that are asked for alone (IPAM plugin static); set the " +
			"annotation " + Wish + " of the template, as `virtctl create vm --ip` does"
	case d.IPAM == hostLocal, d.IPAM == static:
		return request, ""
	case d.Takes:
		return ByRequest, ""
	case d.Unread:
		return "", "the configuration of network " + network + " is on the nodes, and not in spec.config of its " +
			"NetworkAttachmentDefinition"
	case d.IPAM == ovnKubernetes && d.Persistent:
		return ByClaim, ""
	case d.IPAM == ovnKubernetes:
		return "", "network " + network + " of OVN-Kubernetes does not have allowPersistentIPs"
	case d.IPAM == kubeOVN:
		return "", "kube-ovn keeps addresses by annotations of its own, which may go into " +
			"spec.template.metadata.annotations"
	case d.IPAM == "dhcp":
		return "", "the IPAM plugin dhcp of network " + network + " asks the DHCP server anew for each pod"
	case d.IPAM == "":
		return "", ""
	}
	return "", fmt.Sprintf("the IPAM plugin %s of network %s is not known to take addresses; if it does, give its "+
		"plugin \"capabilities\": {\"ips\": true}", d.IPAM, network)
}

// Recorded says that the addresses which the network gives are to be recorded, to ask for them again.
func (k *Keeping) Recorded() bool {
	return (k.Way == ByRequest || k.Way == ByArgument) && k.Definition.IPAM != static
}

// Refusal returns why addresses that a VM's author wishes for cannot be had, or "" when nothing is known that speaks
// against it.
func (k *Keeping) Refusal(wish []Address) string {
	d := k.Definition
	switch {
	case d == nil || d.Unread && k.Way == "":
		return ""
	case k.Why != "":
		return k.Why
	case k.Way == "":
		return "network " + k.Network + " gives no addresses (its ipam is empty); set them in the guest, as by " +
			"cloud-init's networkData"
	case k.Way == ByClaim:
		return "network " + k.Network + " of OVN-Kubernetes chooses the addresses, and keeps them; leave them out"
	case d.IPAM == static:
		return k.refuseStatic(wish)
	}
	return k.outOfRange(wish)
}

func (k *Keeping) refuseStatic(wish []Address) string {
	for _, a := range wish {
		if a.Bits < 0 {
			return fmt.Sprintf("%s has no length of a prefix, which the IPAM plugin static of network %s needs; write "+
				"%s/24 or what its length is", a, k.Network, a)
		}
	}
	return ""
}

// outOfRange returns why host-local would refuse addresses.
func (k *Keeping) outOfRange(wish []Address) string {
	if len(k.Definition.Ranges) == 0 {
		return ""
	}
	used := map[int]Address{}
	for _, a := range wish {
		i := slices.IndexFunc(k.Definition.Ranges, func(s Set) bool { return s.contains(a.Addr) })
		if i < 0 {
			return fmt.Sprintf("%s is not among the addresses that network %s gives, %s; give one of these", a.Addr,
				k.Network, k.Definition.ranges())
		}
		if other, taken := used[i]; taken {
			return fmt.Sprintf("network %s gives one address of %s, and not both %s and %s; remove one", k.Network,
				k.Definition.Ranges[i], other.Addr, a.Addr)
		}
		used[i] = a
	}
	return ""
}

func (d *Definition) ranges() string {
	var out []string
	for _, set := range d.Ranges {
		out = append(out, set.String())
	}
	return strings.Join(out, " and ")
}

// Ask returns the addresses that a pod of a VMI asks the network for, as the way has them. Recorded ones that the
// network does not give any more are left out, so that the pod gets others.
//
// The target of a migration asks for none of the guest's: as soon as its pod is connected, its kernel would answer who
// sends to the guest, which is elsewhere, and end the guest's connections. Its IPAM plugin gives it another address.
// The plugin static has none to give, and is asked for the address of the network itself, which no host has. On a
// network to which the guest comes nobody has its addresses yet: the target asks for those that are wished for, as a
// pod that starts does.
func (k *Keeping) Ask(vmi *v1.VirtualMachineInstance, name string, target bool) []string {
	if k.Way != ByRequest && k.Way != ByArgument {
		return nil
	}
	target = target && !k.Comes
	if target && k.Definition.IPAM != static {
		return nil
	}
	addresses := OfInterface(vmi, name, k.Network)
	if k.Definition.IPAM == static || k.outOfRange(addresses) != "" {
		addresses = Wished(vmi.Annotations, name)
	}
	var out []string
	for _, a := range addresses {
		if target {
			a = standIn(a)
		}
		out = append(out, a.String())
	}
	return out
}

// standIn returns the address of the network that an address is in; a network of two addresses or one has none.
func standIn(a Address) Address {
	if a.Bits < 0 || a.Bits >= a.BitLen()-1 {
		return a
	}
	return Address{Addr: a.Prefix().Masked().Addr(), Bits: a.Bits}
}

// Stands reports whether an address of a pod's link stands in for the guest's, as Ask has it.
func Stands(p netip.Prefix) bool {
	return p.Bits() < p.Addr().BitLen()-1 && p.Masked().Addr() == p.Addr()
}
