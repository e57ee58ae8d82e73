package network

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// AllowSpoofing is the annotation of a VMI that names interfaces, with commas between, whose guest may send as somebody
// else; and the label of a namespace ("true") whose VMIs may have the annotation. Tenants cannot label namespaces.
const AllowSpoofing = "virtkit.io/allow-spoofing"

// Guard is what a guest may say of itself on a network that it is a host of: frames that say anything else are dropped
// at its tap. The guest's MAC is always its interface's, and router advertisements and answers of DHCP are never its.
type Guard struct {
	// IPv4 and IPv6 say that the guest has no addresses of the family but Addresses, and a link-local one with IPv6.
	// Without them nobody has given the guest an address of the family here, and its network alone knows which it has.
	IPv4 bool `json:"ipv4,omitempty"`
	IPv6 bool `json:"ipv6,omitempty"`
	// Addresses are the guest's, of both families.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Network is where they hold, as Interface has it: what a guest may say of itself on one network says nothing of
	// another, to which its interface moves with it. It is in Guards only, and empty where that is not known.
	Network string `json:"network,omitempty"`
}

// Spoof is a kind of frame that a guard drops.
type Spoof string

// The kinds of frames, each of which has a counter.
const (
	// SpoofMAC is a frame from another MAC.
	SpoofMAC Spoof = "mac"
	// SpoofIP is a packet from another IPv4 or IPv6 address.
	SpoofIP Spoof = "ip"
	// SpoofARP says by ARP or RARP that another MAC or IPv4 address is here, SpoofND the same by IPv6's neighbour
	// discovery.
	SpoofARP Spoof = "arp"
	SpoofND  Spoof = "nd"
	// SpoofRouter is a router's advertisement or redirect, SpoofDHCP an answer of a DHCP or DHCPv6 server.
	SpoofRouter Spoof = "router"
	SpoofDHCP   Spoof = "dhcp"
	// SpoofHidden is a frame with headers that hide from a guard what a receiver would take it for.
	SpoofHidden Spoof = "hidden"
)

// Spoofs are all kinds, in the order in which a frame is looked at.
var Spoofs = []Spoof{SpoofMAC, SpoofHidden, SpoofARP, SpoofDHCP, SpoofRouter, SpoofND, SpoofIP}

// guard returns what the guest of a bridge may say of itself. Where DHCP offers the addresses of the pod's link, these
// are the guest's, all of them. On the pod network it has no others in any family; on another network a family without
// an address is not managed. managedTap leaves addresses to the network. A guest that comes from another node keeps
// the addresses that it has; those of another network than the pod's, which may have given this pod others, are not
// bounded.
func (nic *Interface) guard(incoming bool) *Guard {
	if nic.Binding != Bridge {
		return nil
	}
	if incoming && nic.PodLink != PodLink {
		return &Guard{}
	}
	v4, v6 := nic.Guest.IsValid(), nic.IPv6 != nil
	if nic.PodLink == PodLink && (v4 || v6) {
		v4, v6 = true, true
	}
	g := &Guard{IPv4: v4, IPv6: v6}
	for _, a := range nic.PodIPs {
		if a.Is4() && v4 || a.Is6() && v6 {
			g.Addresses = append(g.Addresses, a)
		}
	}
	return g
}

// maxAddresses is how many addresses of an interface are carried from node to node.
const maxAddresses = 64

// Guards returns what the guest of a plan may say of itself on its networks, by interface, for the node that it
// migrates to. The pod network is left out: there the guest has the addresses of its new pod alone. annotations are the
// pod's, for a plan of an earlier version.
func (p *Plan) Guards(annotations map[string]string) map[string]Guard {
	out, connected := map[string]Guard{}, DefinitionsOf(annotations)
	for i := range p.Interfaces {
		if nic := &p.Interfaces[i]; nic.Guard != nil && nic.PodLink != PodLink {
			g := *nic.Guard
			g.Network = cmp.Or(nic.Network, connected[nic.PodLink])
			out[nic.Name] = g
		}
	}
	return out
}

// Admit lets a guest that comes from another node say what it could say there, by interface, beside the addresses of
// its new pod, which DHCP offers it here. Of too many addresses the first, which the guest began with, and the newest
// stay. On another network than there it may say what a guest may that starts here. Admit reports whether that changes
// the plan.
func (p *Plan) Admit(guards map[string]Guard) bool {
	changed := false
	for i := range p.Interfaces {
		nic := &p.Interfaces[i]
		there, ok := guards[nic.Name]
		if !ok || nic.Guard == nil || nic.PodLink == PodLink {
			continue
		}
		if there.Network != "" && nic.Network != "" && there.Network != nic.Network {
			there = Guard{IPv4: nic.Guest.IsValid(), IPv6: nic.IPv6 != nil}
		}
		here := &Guard{IPv4: there.IPv4, IPv6: there.IPv6}
		for _, a := range slices.Concat(there.Addresses, nic.PodIPs) {
			if (a.Is4() && here.IPv4 || a.Is6() && here.IPv6) && a.Zone() == "" && !a.Is4In6() && a.IsGlobalUnicast() &&
				!slices.Contains(here.Addresses, a) {
				here.Addresses = append(here.Addresses, a)
			}
		}
		if over := len(here.Addresses) - maxAddresses; over > 0 {
			here.Addresses = slices.Delete(here.Addresses, 1, 1+over)
		}
		if !reflect.DeepEqual(nic.Guard, here) {
			nic.Guard, changed = here, true
		}
	}
	return changed
}

// Spoofing returns the interfaces whose guest may send as somebody else, as a VMI's annotations name them.
func Spoofing(annotations map[string]string) []string {
	var out []string
	for name := range strings.SplitSeq(annotations[AllowSpoofing], ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// MaySpoof reports whether a namespace with these labels lets its VMIs have the annotation AllowSpoofing.
func MaySpoof(labels map[string]string) bool { return labels[AllowSpoofing] == "true" }

// CheckSpoofing returns why the annotation AllowSpoofing, which is key, is refused with a value for a guest of spec.
func CheckSpoofing(key, value string, spec *v1.VirtualMachineInstanceSpec) error {
	named := Spoofing(map[string]string{key: value})
	if len(named) == 0 {
		return errors.New("names no interface; name those whose guest may send as somebody else, with commas " +
			"between, or remove the annotation")
	}
	for _, name := range named {
		i := slices.IndexFunc(spec.Domain.Devices.Interfaces, func(nic v1.Interface) bool { return nic.Name == name })
		if i < 0 {
			return fmt.Errorf("no interface is named %q; name one that there is, or remove it from the annotation",
				name)
		}
		if nic := spec.Domain.Devices.Interfaces[i]; nic.Masquerade != nil || nic.SRIOV != nil {
			return fmt.Errorf("interface %q is not on a bridge, and only what guests send there is looked at; remove "+
				"it from the annotation", name)
		}
	}
	return nil
}

// mayNotSpoof is why an interface's guest may not do what its VMI's annotation asks for.
func mayNotSpoof(namespace string) error {
	return fmt.Errorf("the VMI has the annotation %s for it, and namespace %s has no label %s=true, which an "+
		"administrator sets; remove the annotation, or ask for the label", AllowSpoofing, namespace, AllowSpoofing)
}
