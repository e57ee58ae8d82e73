package frames

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Frame is one that the guest sends. Kind is empty for an honest one, which a guard lets through.
type Frame struct {
	Name string
	Kind network.Spoof
	Data []byte
}

// Always are frames of which any guard thinks the same, whether or not somebody has given the guest addresses.
func Always() []Frame {
	ra := ICMPv6("fe80::7", AllNodes, 134, make([]byte, 12))
	sLink, tLink := Option(1, MAC), Option(2, MAC)
	wrongS, wrongT := Option(1, OtherMAC), Option(2, OtherMAC)
	once := Option(14, []byte{1, 2, 3, 4, 5, 6})
	na := func(options ...[]byte) []byte {
		return ND("2001:db8::5", AllNodes, 136, About("2001:db8::5"), slices.Concat(options...))
	}
	ns := func(options ...[]byte) []byte {
		return ND("2001:db8::5", "ff02::1:ff00:9", 135, About("2001:db8::9"), slices.Concat(options...))
	}
	rs := func(options ...[]byte) []byte {
		return ND("fe80::7", "ff02::2", 133, make([]byte, 4), slices.Concat(options...))
	}
	offer := UDP(67, 68, "offer")
	toClient6 := func(next byte, before ...[]byte) []byte {
		return IPv6("fe80::7", "fe80::9", next, 64, slices.Concat(before...), UDP(547, 546, "advertise"))
	}
	asIP := func(f []byte) []byte { return slices.Concat([]byte{0xaa, 0xaa, 3, 0, 0, 0}, f[12:]) }
	llc := func(f []byte) []byte { return Ether(MAC, uint16(len(asIP(f))), asIP(f)) }
	return []Frame{
		{"IPv4", "", IPv4("198.51.100.5", "198.51.100.9", unix.IPPROTO_UDP, UDP(4000, 53, "x"))},
		{"IPv4 with a VLAN tag", "", Tagged(IPv4("198.51.100.5", "198.51.100.9", unix.IPPROTO_UDP, UDP(1, 2, "x")), 7)},
		{"IPv6", "", IPv6("2001:db8::5", "2001:db8::9", unix.IPPROTO_UDP, 64, UDP(4000, 53, "x"))},
		{"a fragment", "", IPv6("2001:db8::5", "2001:db8::9", unix.IPPROTO_FRAGMENT, 64,
			[]byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 1}, UDP(4000, 53, "longer"))},
		{"another protocol", "", Ether(MAC, 0x88b6, make([]byte, 46))},
		{"LLC of another", "", Ether(MAC, 46, []byte{0x42, 0x42, 3}, make([]byte, 43))},
		{"ARP request", "", ARP(KindARP, request, MAC, "198.51.100.5", "198.51.100.9")},
		{"gratuitous ARP", "", ARP(KindARP, request, MAC, "198.51.100.5", "198.51.100.5")},
		{"ARP reply", "", ARP(KindARP, reply, MAC, "198.51.100.6", "198.51.100.9")},
		{"ARP probe", "", ARP(KindARP, request, MAC, "0.0.0.0", "198.51.100.5")},
		{"RARP of a migration", "", ARP(KindRARP, 3, MAC, "0.0.0.0", "0.0.0.0")},
		{"DHCP request", "", IPv4("0.0.0.0", "255.255.255.255", unix.IPPROTO_UDP, UDP(68, 67, "discover"))},
		{"DHCP renewal", "", IPv4("198.51.100.5", "198.51.100.1", unix.IPPROTO_UDP, UDP(68, 67, "request"))},
		{"DHCPv6 request", "", IPv6("fe80::7", "ff02::1:2", unix.IPPROTO_UDP, 1, UDP(546, 547, "solicit"))},
		{"NA", "", na(tLink)},
		{"NA without option", "", na()},
		{
			"NA of a link-local address of privacy", "",
			ND("fe80::aaaa:1", AllNodes, 136, About("fe80::aaaa:1"), tLink),
		},
		{"NS", "", ns(sLink)},
		{"NS with nonce", "", ns(sLink, once)},
		{"NS with nonce first", "", ns(once, sLink)},
		{"DAD", "", ND("::", "ff02::1:ff00:5", 135, About("2001:db8::5"))},
		{"DAD with nonce", "", ND("::", "ff02::1:ff00:7", 135, About("fe80::7"), once)},
		{"RS", "", rs(sLink)},
		{"RS without an address", "", ND("::", "ff02::2", 133, make([]byte, 4))},
		{"RS with nonce", "", rs(sLink, once)},
		{"MLD without an address", "", IPv6("::", "ff02::16", unix.IPPROTO_HOPOPTS, 1,
			[]byte{unix.IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0}, ICMPv6("::", "ff02::16", 143, make([]byte, 4)))},

		{"another MAC", network.SpoofMAC, Ether(OtherMAC, 0x88b6, make([]byte, 46))},
		{"another MAC with a VLAN tag", network.SpoofMAC, Tagged(Ether(OtherMAC, 0x88b6, make([]byte, 46)), 7)},
		{"two VLAN tags", network.SpoofHidden, Tagged(ND("fe80::7", AllNodes, 134, make([]byte, 12)), 0, 0)},
		{
			"three VLAN tags", network.SpoofHidden,
			Tagged(ARP(KindARP, reply, OtherMAC, "198.51.100.9", "0.0.0.0"), 0, 0, 7),
		},
		{"IPv6 as LLC", network.SpoofHidden, llc(ND("fe80::7", AllNodes, 134, make([]byte, 12)))},
		{
			"ARP as LLC behind a VLAN tag", network.SpoofHidden,
			Tagged(llc(ARP(KindARP, reply, OtherMAC, "198.51.100.9", "0.0.0.0")), 7),
		},
		{"ARP with another MAC", network.SpoofARP, ARP(KindARP, reply, OtherMAC, "198.51.100.5", "198.51.100.9")},
		{"RARP with another MAC", network.SpoofARP, ARP(KindRARP, 3, OtherMAC, "0.0.0.0", "0.0.0.0")},
		{
			"ARP of another kind", network.SpoofARP,
			Ether(MAC, KindARP, []byte{0, 6, 8, 0, 6, 4, 0, 2}, make([]byte, 38)),
		},
		{"ARP that ends early", network.SpoofARP, Ether(MAC, KindARP, []byte{0, 1, 8, 0, 6, 4, 0, 2})},
		{"DHCP offer", network.SpoofDHCP, IPv4("198.51.100.5", "255.255.255.255", unix.IPPROTO_UDP, offer)},
		{
			"DHCP offer with a VLAN tag", network.SpoofDHCP,
			Tagged(IPv4("198.51.100.5", "255.255.255.255", unix.IPPROTO_UDP, offer), 0),
		},
		{"DHCPv6 advertise", network.SpoofDHCP, toClient6(unix.IPPROTO_UDP)},
		{
			"DHCPv6 behind an option", network.SpoofDHCP,
			toClient6(unix.IPPROTO_DSTOPTS, []byte{unix.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0}),
		},
		{
			"DHCPv6 in a fragment", network.SpoofDHCP,
			toClient6(unix.IPPROTO_FRAGMENT, []byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, 1}),
		},
		{"DHCPv6 behind an option in a fragment", network.SpoofHidden, toClient6(unix.IPPROTO_FRAGMENT,
			[]byte{unix.IPPROTO_DSTOPTS, 0, 0, 1, 0, 0, 0, 1, unix.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0})},
		{"RA", network.SpoofRouter, IPv6("fe80::7", AllNodes, unix.IPPROTO_ICMPV6, 255, ra)},
		{
			"RA with a VLAN tag", network.SpoofRouter,
			Tagged(IPv6("fe80::7", AllNodes, unix.IPPROTO_ICMPV6, 255, ra), 0),
		},
		{"redirect", network.SpoofRouter, ND("fe80::7", "fe80::9", 137, make([]byte, 36))},
		{"RA behind an option", network.SpoofHidden, IPv6("fe80::7", AllNodes, unix.IPPROTO_DSTOPTS, 255,
			[]byte{unix.IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0}, ra)},
		{"RA in a fragment", network.SpoofHidden, IPv6("fe80::7", AllNodes, unix.IPPROTO_FRAGMENT, 255,
			[]byte{unix.IPPROTO_ICMPV6, 0, 0, 0, 0, 0, 0, 1}, ra)},
		{"NA with another MAC", network.SpoofND, na(wrongT)},
		{"NA with a second MAC", network.SpoofND, na(tLink, wrongT)},
		{"NA with another MAC behind a nonce", network.SpoofND, na(once, wrongT)},
		{"NA that ends early", network.SpoofND, ND("2001:db8::5", AllNodes, 136, make([]byte, 4))},
		{"NS with another MAC", network.SpoofND, ns(wrongS)},
		{"NS with another MAC behind a nonce", network.SpoofND, ns(once, wrongS)},
		{"NS with a second MAC", network.SpoofND, ns(sLink, wrongS)},
		{"RS with another MAC", network.SpoofND, rs(wrongS)},
	}
}

// Bound are frames that are spoofed by a guest with known addresses, and honest where only its network knows them.
func Bound() []Frame {
	return []Frame{
		{
			"another IPv4 address", network.SpoofIP,
			IPv4("198.51.100.9", "198.51.100.1", unix.IPPROTO_UDP, UDP(1, 2, "x")),
		},
		{
			"another IPv4 address with a VLAN tag", network.SpoofIP,
			Tagged(IPv4("198.51.100.9", "198.51.100.1", unix.IPPROTO_UDP, UDP(1, 2, "x")), 0),
		},
		{"no IPv4 address", network.SpoofIP, IPv4("0.0.0.0", "255.255.255.255", unix.IPPROTO_UDP, UDP(1, 2, "x"))},
		{
			"no IPv4 address to one host", network.SpoofIP,
			IPv4("0.0.0.0", "198.51.100.9", unix.IPPROTO_UDP, UDP(68, 67, "x")),
		},
		{"ARP for another", network.SpoofARP, ARP(KindARP, reply, MAC, "198.51.100.1", "198.51.100.9")},
		{
			"gratuitous ARP for another", network.SpoofARP,
			ARP(KindARP, request, MAC, "198.51.100.9", "198.51.100.9"),
		},
		{
			"another IPv6 address", network.SpoofIP,
			IPv6("2001:db8::9", "2001:db8::1", unix.IPPROTO_UDP, 64, UDP(1, 2, "x")),
		},
		{
			"a temporary IPv6 address", network.SpoofIP,
			IPv6("2001:db8::aaaa:1", "2001:db8::1", unix.IPPROTO_UDP, 64, UDP(1, 2, "x")),
		},
		{"no IPv6 address", network.SpoofIP, IPv6("::", "2001:db8::1", unix.IPPROTO_UDP, 64, UDP(1, 2, "x"))},
		{"NA for another", network.SpoofND, ND("2001:db8::5", AllNodes, 136, About("2001:db8::9"), Option(2, MAC))},
		{"DAD for another", network.SpoofND, ND("::", "ff02::1:ff00:9", 135, About("2001:db8::9"))},
		{"NS from another", network.SpoofIP, ND("2001:db8::9", AllNodes, 135, About("2001:db8::1"), Option(1, MAC))},
	}
}
