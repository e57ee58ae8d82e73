package network

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

const (
	// podLink is the pod network's link, as every CNI runtime names it.
	podLink = "eth0"
	// defaultCIDR is KubeVirt's guest network behind masquerade.
	defaultCIDR = "10.0.2.0/24"
	// nameLimit is IFNAMSIZ less the terminating zero.
	nameLimit = 15
)

// Pod is what NewPlan must know of a launcher pod; pkg/network/apply reads it.
type Pod struct {
	Links []Link
	// Search are the domains in the pod's resolv.conf.
	Search []string
}

// Link is one link of a pod with its IPv4 and IPv6 configuration.
type Link struct {
	Name      string
	MAC       string
	MTU       int
	Addresses []netip.Prefix
	// Routes leave through the link. An invalid Via (the zero Addr) is on-link.
	Routes []Route
}

// NewPlan says what must exist in the pod for the VMI's interfaces, in the order of the spec. The
// errors name the field of the VMI, or the fact of the pod, that stands in the way.
//
// With the bridge binding the plan holds what the guest takes over (addresses, gateway, MAC), which
// is gone from the pod once the plan is applied: keep the plan, don't make it again.
func NewPlan(vmi *v1.VirtualMachineInstance, pod Pod) (Plan, error) {
	networks := make(map[string]v1.Network, len(vmi.Spec.Networks))
	for _, n := range vmi.Spec.Networks {
		networks[n.Name] = n
	}
	var plan Plan
	for i, spec := range vmi.Spec.Domain.Devices.Interfaces {
		nw, ok := networks[spec.Name]
		if !ok {
			return Plan{}, fmt.Errorf("spec.domain.devices.interfaces[%d]: no network is named %q in spec.networks", i, spec.Name)
		}
		if nw.Pod == nil {
			return Plan{}, fmt.Errorf("spec.networks: network %q is not the pod network, which is the only kind supported", nw.Name)
		}
		link, err := pod.link(podLink)
		if err != nil {
			return Plan{}, fmt.Errorf("interface %q: %w", spec.Name, err)
		}
		nic := Interface{
			Name:       spec.Name,
			PodLink:    link.Name,
			BridgeLink: limitName("k6t-" + link.Name),
			Tap:        fmt.Sprintf("tap%d", i),
			MTU:        link.MTU,
			Hostname:   hostname(vmi),
			Search:     search(vmi, pod.Search),
		}
		for _, p := range link.Addresses {
			nic.PodIPs = append(nic.PodIPs, p.Addr())
		}
		for _, p := range spec.Ports {
			port := Port{Name: p.Name, Protocol: strings.ToUpper(p.Protocol), Port: p.Port}
			if port.Protocol == "" {
				port.Protocol = "TCP"
			}
			nic.Ports = append(nic.Ports, port)
		}
		switch {
		case spec.Masquerade != nil:
			err = nic.masquerade(vmi, spec, nw.Pod, link)
		case spec.Bridge != nil:
			err = nic.bridge(spec, link)
		default:
			err = errors.New("no supported binding: set masquerade: {} or bridge: {}")
		}
		if err != nil {
			return Plan{}, fmt.Errorf("interface %q: %w", spec.Name, err)
		}
		plan.Interfaces = append(plan.Interfaces, nic)
	}
	return plan, nil
}

func (nic *Interface) masquerade(vmi *v1.VirtualMachineInstance, spec v1.Interface, nw *v1.PodNetwork, link Link) error {
	nic.Binding = Masquerade
	if _, ok := link.ipv4(); !ok {
		return fmt.Errorf("the pod's %s has no IPv4 address, which masquerade needs", link.Name)
	}
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
	nic.Guest = gateway.Next()
	nic.MAC, err = macAddress(spec.MacAddress, StableMAC(string(vmi.UID), spec.Name))
	return err
}

func (nic *Interface) bridge(spec v1.Interface, link Link) error {
	nic.Binding = Bridge
	address, ok := link.ipv4()
	if !ok {
		return fmt.Errorf("the pod's %s has no IPv4 address for the guest to take", link.Name)
	}
	nic.Guest = address.Addr()
	onLink := address.Masked()
	for _, r := range link.Routes {
		if !r.Destination.Addr().Is4() {
			continue
		}
		switch {
		case r.Destination.Bits() == 0 && r.Via.Is4():
			nic.Gateway = netip.PrefixFrom(r.Via, address.Bits())
		case r.Destination == onLink && !r.Via.IsValid():
			// The guest has this one by its netmask.
		default:
			via := r.Via
			if !via.IsValid() {
				via = netip.IPv4Unspecified()
			}
			nic.Routes = append(nic.Routes, Route{Destination: r.Destination, Via: via})
		}
	}
	if !nic.Gateway.IsValid() {
		return fmt.Errorf("the pod's %s has no default route for the guest to take", link.Name)
	}
	var err error
	nic.MAC, err = macAddress(spec.MacAddress, link.MAC)
	return err
}

// StableMAC is the address of an interface whose spec gives none: the same for a VMI's whole life,
// locally administered, and different between VMIs.
func StableMAC(uid, name string) string {
	sum := sha256.Sum256([]byte(uid + "/" + name))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
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

func hostname(vmi *v1.VirtualMachineInstance) string {
	if vmi.Spec.Hostname != "" {
		return vmi.Spec.Hostname
	}
	// A VMI's name may have dots; the first label is the host's.
	name, _, _ := strings.Cut(vmi.Name, ".")
	return name
}

// search is the domain in which a guest with spec.subdomain finds its own full name: the subdomain
// in the pod's namespace, whose domain is in the pod's own search list.
func search(vmi *v1.VirtualMachineInstance, domains []string) []string {
	if vmi.Spec.Subdomain == "" {
		return nil
	}
	for _, d := range domains {
		if strings.HasPrefix(d, vmi.Namespace+".svc.") {
			return []string{vmi.Spec.Subdomain + "." + d}
		}
	}
	return nil
}

func (p Pod) link(name string) (Link, error) {
	for _, l := range p.Links {
		if l.Name == name {
			return l, nil
		}
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

func limitName(name string) string {
	if len(name) <= nameLimit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("k6t-%x", sum[:5])
}
