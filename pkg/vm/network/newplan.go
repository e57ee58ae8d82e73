package network

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// defaultCIDR and defaultCIDR6 are KubeVirt's guest networks behind masquerade.
const (
	defaultCIDR  = "10.0.2.0/24"
	defaultCIDR6 = "fd10:0:2::/120"
)

// Pod has the facts of a launcher pod that NewPlan needs; pkg/vm/network/apply reads it.
type Pod struct {
	Links []Link
	// Search are the domains in the pod's resolv.conf, Nameservers its name servers.
	Search      []string
	Nameservers []netip.Addr
	// Multus says that Multus runs on the node: it has left its status in the pod.
	Multus bool
	// Attachments are the entries of that status.
	Attachments []Attachment
	// Plugins are the installation's.
	Plugins Plugins
	// MaySpoof says that the VMI's namespace has the label AllowSpoofing.
	MaySpoof bool
	// Incoming says that the guest comes by a migration, with the addresses that it has.
	Incoming bool
}

// missing returns the error that a network's link is not in the pod, and why.
func missing(network, definition string, multus bool) error {
	if multus {
		return fmt.Errorf("network %q: Multus has not connected the pod to NetworkAttachmentDefinition %s; restart "+
			"the VM", network, definition)
	}
	return fmt.Errorf("network %q %s, which does not run on this node: the pod has no annotation %s; install Multus "+
		"and restart the VM, or remove the network from spec.networks", network, names.MessageNeedsMultus,
		AnnotationStatus)
}

// Link is one link of a pod with its IPv4 and IPv6 configuration.
type Link struct {
	Name string
	MAC  string
	MTU  int
	// Tap says that it is one.
	Tap       bool
	Addresses []netip.Prefix
	// Routes leave through the link. An invalid Via (the zero Addr) is on-link.
	Routes []Route
}

// NewPlan says what must exist in the pod for the VMI's interfaces, in the order of the spec. The
// errors name the field of the VMI, or the fact of the pod, that stands in the way.
//
// An interface that was added while the guest runs is left out where the pod is not connected to its network.
//
// With the bridge binding the plan holds what the guest takes over (addresses, gateway, MAC), which
// is gone from the pod once the plan is applied: keep the plan, don't make it again.
func NewPlan(vmi *v1.VirtualMachineInstance, pod Pod) (Plan, error) {
	networks := make(map[string]v1.Network, len(vmi.Spec.Networks))
	for _, n := range vmi.Spec.Networks {
		networks[n.Name] = n
	}
	spoofing := Spoofing(vmi.Annotations)
	var plan Plan
	for i, spec := range vmi.Spec.Domain.Devices.Interfaces {
		nw, ok := networks[spec.Name]
		if !ok {
			return Plan{},
				fmt.Errorf("spec.domain.devices.interfaces[%d]: no network is named %q in spec.networks", i, spec.Name)
		}
		if spec.State == v1.InterfaceStateAbsent {
			continue
		}
		if spec.SRIOV != nil {
			nic, err := passed(vmi, spec, nw, pod)
			if err != nil {
				return Plan{}, fmt.Errorf("interface %q: %w", spec.Name, err)
			}
			plan.Interfaces = append(plan.Interfaces, nic)
			continue
		}
		link, err := pod.link(vmi, nw)
		if err != nil && comes(vmi, &spec, &nw) {
			continue
		}
		if err != nil {
			return Plan{}, fmt.Errorf("interface %q: %w", spec.Name, err)
		}
		bridge, tap := linkNames(nw)
		podIPs := link.podIPs(pod.Incoming)
		if pod.Incoming {
			link = link.guests(vmi, &nw)
		}
		nic := Interface{
			Name:       spec.Name,
			PodLink:    link.Name,
			Network:    Definition(vmi.Namespace, &nw),
			PodIPs:     podIPs,
			BridgeLink: bridge,
			Tap:        tap,
			MTU:        link.MTU,
			Hostname:   identity.Host(vmi),
			Search:     search(vmi, pod.Search),
			Queues:     queues(&vmi.Spec.Domain, spec),
		}
		if nic.DHCP, err = dhcpOptions(spec.DHCPOptions); err != nil {
			return Plan{}, fmt.Errorf("interface %q: %w", spec.Name, err)
		}
		for _, p := range spec.Ports {
			port := Port{Name: p.Name, Protocol: strings.ToUpper(p.Protocol), Port: p.Port}
			if port.Protocol == "" {
				port.Protocol = "TCP"
			}
			nic.Ports = append(nic.Ports, port)
		}
		switch {
		case spec.Masquerade != nil && nw.Pod == nil:
			err = errors.New("masquerade is for the pod network; set bridge: {}")
		case spec.Masquerade != nil:
			err = nic.masquerade(vmi, spec, nw.Pod, link)
		case spec.Binding != nil:
			err = nic.plugin(vmi, spec, pod, link)
		case spec.Bridge != nil:
			err = nic.bridge(vmi, spec, link)
		default:
			err = errors.New("no supported binding: set masquerade: {} or bridge: {}")
		}
		if err != nil {
			return Plan{}, fmt.Errorf("interface %q: %w", spec.Name, err)
		}
		if nic.IPv6 != nil {
			nic.resolve(pod)
		}
		nic.Guard = nic.guard(pod.Incoming)
		if nic.Guard != nil && slices.Contains(spoofing, nic.Name) {
			if !pod.MaySpoof {
				return Plan{}, fmt.Errorf("interface %q: %w", spec.Name, mayNotSpoof(vmi.Namespace))
			}
			nic.Guard = nil
		}
		plan.Interfaces = append(plan.Interfaces, nic)
	}
	return plan, nil
}

func (nic *Interface) masquerade(
	vmi *v1.VirtualMachineInstance, spec v1.Interface, nw *v1.PodNetwork, link Link,
) error {
	nic.Binding, nic.Proxied = Masquerade, Proxied(vmi)
	_, v4 := link.ipv4()
	_, v6 := link.ipv6()
	if !v4 && !v6 {
		return fmt.Errorf("the pod's %s has no IP address, which masquerade needs", link.Name)
	}
	var err error
	if nic.MAC, err = macAddress("", MasqueradeMAC(vmi, &spec)); err != nil {
		return err
	}
	if v4 {
		err = nic.behind(nw)
	}
	if err == nil && v6 {
		err = nic.behind6(nw)
	}
	return err
}

// behind gives the guest its IPv4 address behind the pod's.
func (nic *Interface) behind(nw *v1.PodNetwork) error {
	cidr := nw.VMNetworkCIDR
	if cidr == "" {
		cidr = defaultCIDR
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 30 {
		return fmt.Errorf("vmNetworkCIDR %q is not an IPv4 network of /30 or larger, such as %s", cidr, defaultCIDR)
	}
	prefix = prefix.Masked()
	gateway := prefix.Addr().Next()
	nic.Gateway = netip.PrefixFrom(gateway, prefix.Bits())
	nic.Guest, nic.Bits = gateway.Next(), prefix.Bits()
	return nil
}

func (nic *Interface) bridge(vmi *v1.VirtualMachineInstance, spec v1.Interface, link Link) error {
	nic.Binding = Bridge
	var err error
	// A guest that has come from another node keeps its MAC, whatever the pod's link here was given.
	nic.MAC, err = macAddress(spec.MacAddress, knownMAC(vmi, spec.Name, link.MAC))
	if err != nil {
		return err
	}
	address, v4 := link.ipv4()
	address6, v6 := link.ipv6()
	if !v4 && !v6 && link.Name == PodLink {
		return fmt.Errorf("the pod's %s has no IP address for the guest to take", link.Name)
	}
	if v6 {
		nic.takeOver6(address6, link)
	}
	if v4 {
		return nic.takeOver(address, link)
	}
	return nil // a network without address management: a link, and nothing else
}

// takeOver gives the guest the IPv4 configuration that the pod's link has.
func (nic *Interface) takeOver(address netip.Prefix, link Link) error {
	nic.Guest = address.Addr()
	onLink := address.Masked()
	bits := address.Addr().BitLen()
	var gateway netip.Addr
	for _, r := range link.Routes {
		if !r.Destination.Addr().Is4() {
			continue
		}
		switch {
		case r.Destination.Bits() == 0 && r.Via.Is4():
			gateway = r.Via
		case r.Destination == onLink && !r.Via.IsValid():
			// The guest has this one by its netmask.
			bits = address.Bits()
		default:
			via := r.Via
			if !via.IsValid() {
				via = netip.IPv4Unspecified()
			}
			nic.Routes = append(nic.Routes, Route{Destination: r.Destination, Via: via})
		}
	}
	// Where the pod does not reach its subnet on the link (CNI plugin ptp, Calico), nor does the guest: its address is
	// alone in its subnet, and all else has a route.
	nic.Bits = bits
	if !gateway.IsValid() {
		if link.Name == PodLink {
			return fmt.Errorf("the pod's %s has no default route for the guest to take", link.Name)
		}
		return nil
	}
	nic.Gateway = netip.PrefixFrom(gateway, bits)
	if !nic.reachesOnLink(gateway) {
		nic.Routes = append(nic.Routes,
			Route{Destination: netip.PrefixFrom(gateway, gateway.BitLen()), Via: netip.IPv4Unspecified()})
	}
	// A route through a router comes after that to the router.
	slices.SortStableFunc(nic.Routes, func(a, b Route) int {
		return cmp.Compare(hops(a), hops(b))
	})
	return nil
}

func hops(r Route) int {
	if r.Via.IsUnspecified() {
		return 0
	}
	return 1
}

func (nic *Interface) reachesOnLink(a netip.Addr) bool {
	if netip.PrefixFrom(nic.Guest, nic.Bits).Masked().Contains(a) {
		return true
	}
	return slices.ContainsFunc(nic.Routes,
		func(r Route) bool { return r.Via.IsUnspecified() && r.Destination.Contains(a) })
}

// knownMAC returns the MAC that an interface of the guest has, once it runs.
func knownMAC(vmi *v1.VirtualMachineInstance, name, otherwise string) string {
	return cmp.Or(macaddress.Running(vmi, name), otherwise)
}

// MasqueradeMAC returns the MAC of an interface to which nothing in the pod gives one: its spec's, that of the guest,
// which may have come from another node, its VM's record, or one made of the VMI's UID.
func MasqueradeMAC(vmi *v1.VirtualMachineInstance, nic *v1.Interface) string {
	return cmp.Or(nic.MacAddress, macaddress.Running(vmi, nic.Name), macaddress.OfInterface(vmi, nic),
		macaddress.Stable(string(vmi.UID), nic.Name))
}

func macAddress(spec, otherwise string) (string, error) {
	if spec == "" {
		spec = otherwise
	}
	mac, err := net.ParseMAC(spec)
	if err != nil || len(mac) != 6 {
		return "", fmt.Errorf("macAddress %q is not an Ethernet address such as 02:12:34:56:78:9a", spec)
	}
	return mac.String(), nil
}

// search returns the domains of a guest with spec.subdomain: the one in which it finds its own full name, the subdomain
// in the pod's namespace, and then the pod's own. A guest without has just those, nil here.
func search(vmi *v1.VirtualMachineInstance, domains []string) []string {
	if vmi.Spec.Subdomain == "" {
		return nil
	}
	for _, d := range domains {
		if strings.HasPrefix(d, vmi.Namespace+".svc.") {
			return append([]string{vmi.Spec.Subdomain + "." + d}, domains...)
		}
	}
	return nil
}

func (p Pod) link(vmi *v1.VirtualMachineInstance, n v1.Network) (Link, error) {
	name := LinkOf(n)
	for _, l := range p.Links {
		if l.Name == name {
			return l, nil
		}
	}
	if n.Multus != nil && !n.Multus.Default {
		namespace, definition := definition(vmi.Namespace, n.Multus.NetworkName)
		return Link{}, missing(n.Name, namespace+"/"+definition, p.Multus)
	}
	return Link{}, fmt.Errorf("the pod has no link %s; does it run in the host's network?", name)
}

func (l Link) ipv4() (netip.Prefix, bool) {
	for _, p := range l.Addresses {
		if p.Addr().Is4() {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// linkNames returns the names of the bridge and the tap for a network. Both pods of a guest that migrates have the
// same, by which QEMU finds its tap.
func linkNames(n v1.Network) (bridge, tap string) {
	if primary(n) {
		return "k6t-" + PodLink, "tap0"
	}
	return "k6t-" + hash(n.Name), "tap" + hash(n.Name)
}
