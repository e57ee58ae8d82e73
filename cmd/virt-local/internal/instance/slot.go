package instance

import (
	"fmt"
	"net/netip"
)

// MaxSlots is how many instances fit on one machine, and MaxNodes how many nodes in one instance.
const (
	MaxSlots = 32
	MaxNodes = 64
)

// Family is a family of addresses.
type Family int

// The families that an instance may have.
const (
	V4 Family = iota
	V6
)

// String names the family as nftables and iproute2 do.
func (f Family) String() string {
	if f == V6 {
		return "ip6"
	}
	return "ip"
}

// Slot is an instance's share of what is global on a machine: addresses and link names. Everything
// follows from its number, so two instances never meet.
//
//	nodes     10.99.S.0/24        .1 is the machine (the API server, DNS), .11 node1, .12 node2, …
//	pods      10.(128+S).0.0/16   node k has 10.(128+S).k.0/24
//	services  10.(192+S).0.0/16   .0.1 is kubernetes.default, .0.10 the cluster's DNS
//	bridge    vlocalS             on the machine, with one port vlocalS-nK a node
//	LANs      vlocalS-lanJ        with --multus, on the machine, with one port vlocalS-lJ-K a node
//
// IPv6 addresses are unique local ones (RFC 4193), of a network /48 for each slot. They have the decimal digits of the
// numbers S, 1, 11 and k, so that node2 of slot 3 is 10.99.3.12 and fd76:6c6f:6303::12.
//
//	nodes     fd76:6c6f:63SS::/64         ::1 is the machine, ::11 node1, ::12 node2, …
//	pods      fd76:6c6f:63SS:100::/56     node k has fd76:6c6f:63SS:1kk::/64
//	services  fd76:6c6f:63SS:200::/112    ::1 is kubernetes.default or its next, ::10 the cluster's DNS
type Slot int

// six returns an IPv6 address of the slot from the number of a network below its /48 and of a host.
func (s Slot) six(network, host uint16) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0xfd, 'v', 'l', 'o', 'c', byte(digits(int(s))), byte(network >> 8), byte(network),
		14: byte(host >> 8), 15: byte(host),
	})
}

// digits returns the number whose hexadecimal digits are n's decimal ones.
func digits(n int) uint16 {
	if n < 10 {
		return uint16(n)
	}
	return digits(n/10)<<4 | uint16(n%10)
}

// NodeNet returns the network of the nodes and the machine.
func (s Slot) NodeNet(f Family) netip.Prefix {
	if f == V6 {
		return netip.PrefixFrom(s.six(0, 0), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(s), 0}), 24)
}

// PodNet contains the pod networks of all nodes.
func (s Slot) PodNet(f Family) netip.Prefix {
	if f == V6 {
		return netip.PrefixFrom(s.six(0x100, 0), 56)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + byte(s), 0, 0}), 16)
}

// ServiceNet returns the network of the Services' cluster IPs.
func (s Slot) ServiceNet(f Family) netip.Prefix {
	if f == V6 {
		return netip.PrefixFrom(s.six(0x200, 0), 112)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 192 + byte(s), 0, 0}), 16)
}

// HostIP returns the machine's address on the bridge: the API server's and the DNS server's.
func (s Slot) HostIP(f Family) netip.Addr {
	if f == V6 {
		return s.six(0, 1)
	}
	return netip.AddrFrom4([4]byte{10, 99, byte(s), 1})
}

// NodeIP returns the address of node k, counted from 1.
func (s Slot) NodeIP(f Family, k int) netip.Addr {
	if f == V6 {
		return s.six(0, digits(10+k))
	}
	return netip.AddrFrom4([4]byte{10, 99, byte(s), byte(10 + k)})
}

// NodePodNet returns the network of the pods of node k, counted from 1.
func (s Slot) NodePodNet(f Family, k int) netip.Prefix {
	if f == V6 {
		return netip.PrefixFrom(s.six(0x100|digits(k), 0), 64)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + byte(s), byte(k), 0}), 24)
}

// KubernetesIP returns the first cluster IP, which the Service kubernetes.default has of the instance's first family.
func (s Slot) KubernetesIP(f Family) netip.Addr { return s.ServiceNet(f).Addr().Next() }

// DNSIP returns the cluster IP of the Service kube-dns.
func (s Slot) DNSIP(f Family) netip.Addr {
	if f == V6 {
		return s.six(0x200, 0x10)
	}
	return netip.AddrFrom4([4]byte{10, 192 + byte(s), 0, 10})
}

// Bridge returns the name of the bridge that joins the nodes and the machine.
func (s Slot) Bridge() string { return fmt.Sprintf("vlocal%d", int(s)) }

// Port returns the name of the machine's end of the cable to node k. At most 12 bytes (the kernel allows 15).
func (s Slot) Port(k int) string { return fmt.Sprintf("vlocal%d-n%d", int(s), k) }

// LANs is how many Ethernets join the nodes of an instance with Multus, for pods' further networks.
const LANs = 2

// LAN returns the name of the bridge of LAN j, counted from 1, and LANPort that of its port to node k.
func (s Slot) LAN(j int) string { return fmt.Sprintf("vlocal%d-lan%d", int(s), j) }

// LANPort returns the name of node k's port on LAN j, at most 14 bytes.
func (s Slot) LANPort(j, k int) string { return fmt.Sprintf("vlocal%d-l%d-%d", int(s), j, k) }

// Networks returns all prefixes of the slot, of both families.
func (s Slot) Networks() []netip.Prefix {
	var all []netip.Prefix
	for _, f := range []Family{V4, V6} {
		all = append(all, s.NodeNet(f), s.PodNet(f), s.ServiceNet(f))
	}
	return all
}

// ChooseSlot returns the lowest slot that nobody has taken and whose networks do not overlap with
// what the machine already routes. Routes as wide as a /8 do not count: a VPN for all of 10/8 loses
// to our more specific ones and keeps working for the rest.
func ChooseSlot(taken map[Slot]bool, routed []netip.Prefix) (Slot, error) {
	for s := Slot(0); s < MaxSlots; s++ {
		if !taken[s] && !overlaps(s.Networks(), routed) {
			return s, nil
		}
	}
	return 0, fmt.Errorf("no free networks: each of the %d slots (10.99.S.0/24, 10.128+S.0.0/16, 10.192+S.0.0/16, "+
		"fd76:6c6f:63SS::/48) is taken by an instance or routed on this machine; see `ip route` and `ip -6 route`",
		MaxSlots)
}

func overlaps(ours, routed []netip.Prefix) bool {
	for _, r := range routed {
		if r.Bits() <= 8 {
			continue
		}
		for _, o := range ours {
			if o.Overlaps(r) {
				return true
			}
		}
	}
	return false
}
