// Package network turns a VMI's interfaces into what must exist in its pod. This file is the pure part: the plan, made
// of plain values. virt-handler makes it from the VMI and the pod's links, applies it with pkg/vm/network/apply, and
// passes it to the launcher, which builds the domain's interfaces and answers DHCP from it (pkg/vm/network/dhcp).
package network

import (
	"net"
	"net/netip"
	"slices"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// Plan holds all that a VMI's networks need in its pod. It travels as JSON.
type Plan struct {
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Has reports whether an interface is in the plan.
func (p Plan) Has(name string) bool {
	return slices.ContainsFunc(p.Interfaces, func(i Interface) bool { return i.Name == name })
}

// Binding is the way in which a guest's NIC reaches the pod's network.
type Binding string

const (
	// Masquerade gives the guest a private address behind NAT on the pod's.
	Masquerade Binding = "masquerade"
	// Bridge gives the guest the pod's own address and MAC.
	Bridge Binding = "bridge"
	// Tap is a tap that a CNI plugin has made: there is nothing to make for it.
	Tap Binding = "tap"
	// SRIOV is a function of the node's network card, which the guest has itself: no link in the pod is its.
	SRIOV Binding = "sriov"
)

// Interface is one guest NIC.
type Interface struct {
	// Name is the interface's and network's name in the VMI spec.
	Name    string  `json:"name"`
	Binding Binding `json:"binding"`
	// PodLink is the link in the pod: eth0 for the pod network, else as LinkOf names it.
	PodLink string `json:"podLink"`
	// Network is NAMESPACE/NAME of the NetworkAttachmentDefinition that PodLink is of; empty on the cluster's own, and
	// in a plan of an earlier version.
	Network string `json:"network,omitempty"`
	// BridgeLink and Tap are the links to make; 15 bytes at most (IFNAMSIZ).
	BridgeLink string `json:"bridgeLink"`
	Tap        string `json:"tap"`
	// MAC is the guest's address; MTU is the pod link's.
	MAC string `json:"mac"`
	MTU int    `json:"mtu"`
	// PodIPs are the addresses of PodLink.
	PodIPs []netip.Addr `json:"podIPs,omitempty"`
	// Guest is the address that DHCP offers, Bits the length of its prefix, and Gateway the guest's router with the
	// same length, if there is one. For masquerade the router is the bridge itself: 10.0.2.1/24 and 10.0.2.2 unless the
	// network's vmNetworkCIDR says otherwise. For bridge all come from the pod, and the bridge has BridgeAddress;
	// without a Guest (a network without address management) it has none, and nobody answers DHCP.
	Gateway netip.Prefix `json:"gateway"`
	Guest   netip.Addr   `json:"guest"`
	Bits    int          `json:"bits,omitempty"`
	// Ports limits what is forwarded to the guest; none means all.
	Ports []Port `json:"ports,omitempty"`
	// Proxied says that a service mesh's proxy stands in the pod (masquerade): TCP comes to the guest through it.
	Proxied bool `json:"proxied,omitempty"`
	// Routes are offered by DHCP besides the default route (bridge binding). An unspecified Via
	// (0.0.0.0) is on-link, as in DHCP's option 121.
	Routes []Route `json:"routes,omitempty"`
	// Hostname and Search go into DHCP; name servers are read from the pod's resolv.conf.
	Hostname string   `json:"hostname,omitempty"`
	Search   []string `json:"search,omitempty"`
	// Queues is the number of queues of the tap and the guest's NIC; 0 means one.
	Queues uint `json:"queues,omitempty"`
	// Stays says that the guest cannot migrate with it.
	Stays bool `json:"stays,omitempty"`
	// PCI is the node's PCI address of the device that the guest has (SRIOV); empty where the launcher knows by its
	// environment. BridgeLink and Tap are empty then, and so is MAC where nobody has said it.
	PCI string `json:"pci,omitempty"`
	// DHCP holds further DHCP options; nil means none.
	DHCP *DHCPOptions `json:"dhcp,omitempty"`
	// IPv6 is the guest's second family, or its only one; nil where the pod has no IPv6 address on PodLink.
	IPv6 *IPv6 `json:"ipv6,omitempty"`
	// Guard is what the guest may say of itself; nil where nothing of this plan bounds it.
	Guard *Guard `json:"guard,omitempty"`
}

// IPv6 is a guest's IPv6 configuration: its one address by DHCPv6, all else also by router advertisements.
type IPv6 struct {
	// Guest is the address, Bits the length of the prefix that the guest reaches without a router.
	Guest netip.Addr `json:"guest"`
	Bits  int        `json:"bits"`
	// Gateway is the pod's own address in the guest's network under masquerade: fd10:0:2::1 and fd10:0:2::2/120 unless
	// the network's vmIPv6NetworkCIDR says otherwise. Under bridge it is the pod's router where the pod knows it by
	// another address than Router.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Router is the link-local address of the guest's router, the source of router advertisements. Under masquerade it
	// is the bridge's; under bridge the pod's own router's (pkg/vm/network/apply finds the one behind Gateway), and
	// invalid where there is none.
	Router netip.Addr `json:"router,omitzero"`
	// DNS are the pod's name servers that are reached by IPv6, Search the domains to complete names with.
	DNS    []netip.Addr `json:"dns,omitempty"`
	Search []string     `json:"search,omitempty"`
}

// Prefix returns the guest's IPv6 address with its prefix's length.
func (a IPv6) Prefix() netip.Prefix { return netip.PrefixFrom(a.Guest, a.Bits) }

// LinkLocal6 returns the IPv6 link-local address that the bridge has: the same in each pod of a guest.
func (i Interface) LinkLocal6() netip.Addr {
	mac, err := net.ParseMAC(i.BridgeMAC())
	if err != nil {
		panic(err) // macaddress.Stable writes one
	}
	return LinkLocal6(mac)
}

// BridgeMAC is the MAC of BridgeLink. It is the same in each pod of a guest, which keeps it in its caches.
func (i Interface) BridgeMAC() string { return macaddress.Stable(i.MAC, i.BridgeLink) }

// LinkLocal6 returns the link-local address that most hosts make of a MAC of 6 bytes (RFC 4291, appendix A).
func LinkLocal6(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}

// DHCPOptions are the options of DHCP that a VMI adds.
type DHCPOptions struct {
	BootFile   string          `json:"bootFile,omitempty"`
	TFTPServer string          `json:"tftpServer,omitempty"`
	NTP        []netip.Addr    `json:"ntp,omitempty"`
	Private    []PrivateOption `json:"private,omitempty"`
}

// PrivateOption is one of DHCP's options 224 to 254, whose meaning each site defines.
type PrivateOption struct {
	Code  uint8  `json:"code"`
	Value string `json:"value"`
}

// Prefix returns the guest's address with its subnet's length; invalid without an address.
func (i Interface) Prefix() netip.Prefix {
	if i.Bits == 0 { // of a virt-handler that did not write it
		return netip.PrefixFrom(i.Guest, i.Gateway.Bits())
	}
	return netip.PrefixFrom(i.Guest, i.Bits)
}

// BridgeAddress is the address of the bridge link under the bridge binding: what DHCP answers from,
// where neither the guest's nor the pod network's addresses are the pod's any more.
var BridgeAddress = netip.MustParsePrefix("169.254.75.10/32")

// Port is one forwarded port.
type Port struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"` // TCP or UDP
	Port     int32  `json:"port"`
}

// Route is one static route.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Via         netip.Addr   `json:"via"`
}
