package apply

import (
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Offsets in an IPv6 packet, and of ICMPv6 right after its header.
const (
	next6, hops6    = 6, 7
	icmp6           = 40
	target6         = icmp6 + 8
	routerOptions   = icmp6 + 8
	neighborOptions = icmp6 + 24
)

// Messages of ICMPv6.
const (
	routerSolicitation    = 133
	routerAdvertisement   = 134
	neighborSolicitation  = 135
	neighborAdvertisement = 136
	redirect              = 137
)

// Options of neighbour discovery: their type and length, in units of 8 bytes.
var (
	sourceLink = []byte{1, 1}
	targetLink = []byte{2, 1}
	nonce      = []byte{14, 1} // RFC 7527
)

// headers6 are IPv6's extension headers.
var headers6 = []byte{
	unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_AH, unix.IPPROTO_DSTOPTS,
	unix.IPPROTO_MH, 139, 140,
}

var (
	linkLocal6 = netip.MustParsePrefix("fe80::/10")
	noAddress6 = netip.IPv6Unspecified().AsSlice()
)

func (g guardRules) ipv6(mac net.HardwareAddr, guard *network.Guard, router netip.Addr) {
	// Receivers take a message of neighbour discovery only with 255 hops left. No honest one has extension headers, in
	// which, or in fragments, another would hide (RFC 6980, RFC 7113).
	for _, h := range headers6 {
		g.when(stepIPv6, at(next6, h, 255), g.drops(network.SpoofHidden))
		g.when(stepIPv6, fragmentOf(h), g.drops(network.SpoofHidden))
	}
	for _, message := range []byte{routerAdvertisement, redirect} {
		g.when(stepIPv6, message6(message), g.drops(network.SpoofRouter))
	}
	const dhcpClient = 546
	g.when(stepIPv6, udp(2, dhcpClient), g.drops(network.SpoofDHCP))
	g.when(stepIPv6, message6(neighborAdvertisement), g.through(stepAdvert))
	g.when(stepIPv6, message6(neighborSolicitation), g.through(stepSolicit))
	g.when(stepIPv6, message6(routerSolicitation), g.through(stepAsk))
	g.neighbours(mac)
	if !guard.IPv6 {
		return
	}
	g.when(stepIPv6, message6(neighborAdvertisement), g.through(stepTarget))
	g.own6(stepTarget, target6, guard, router, goBack)
	g.when(stepTarget, anything, g.drops(network.SpoofND))

	// A guest has no address yet when it asks whether it may have one, and for whom it listens.
	nobody := at(ipv6.source, noAddress6...)
	g.when(stepIPv6, nobody, message6(neighborSolicitation), g.through(stepTarget))
	for _, message := range []byte{neighborSolicitation, routerSolicitation} {
		g.when(stepIPv6, nobody, message6(message), accept)
	}
	g.when(stepIPv6, at(next6, unix.IPPROTO_HOPOPTS, 1), nobody, at(ipv6.destination, 0xff, 2), accept) // MLD
	g.own6(stepIPv6, ipv6.source, guard, router, accept)
	g.when(stepIPv6, anything, g.drops(network.SpoofIP))
}

// own6 does something with packets that have an address of the guest's at an offset. Its link-local addresses are of
// its own choice (RFC 7217), but for the router's.
func (g guardRules) own6(step string, offset uint32, guard *network.Guard, router netip.Addr, do []expr.Any) {
	for _, a := range guard.Addresses {
		if a.Is6() {
			g.when(step, at(offset, a.AsSlice()...), do)
		}
	}
	local := []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 2},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: []byte{0xff, 0xc0}, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: linkLocal6.Addr().AsSlice()[:2]},
	}
	if router.IsValid() {
		local = append(local, bytesAt(expr.PayloadBaseNetworkHeader, offset, expr.CmpOpNeq, router.AsSlice())...)
	}
	g.when(step, local, do)
}

// neighbours lets messages back with no link-layer address but the guest's. Their options are those that hosts send, by
// the length of the message: there is no room for a second address.
func (g guardRules) neighbours(mac net.HardwareAddr) {
	source, target := slices.Concat(sourceLink, mac), slices.Concat(targetLink, mac)
	g.when(stepAdvert, length6(24), goBack)
	g.when(stepAdvert, length6(32), at(neighborOptions, target...), goBack)
	for step, options := range map[string]uint32{stepSolicit: neighborOptions, stepAsk: routerOptions} {
		size := uint16(options - icmp6)
		g.when(step, length6(size), goBack)
		g.when(step, length6(size+8), at(options, source...), goBack)
		g.when(step, length6(size+8), at(options, nonce...), goBack)
		g.when(step, length6(size+16), at(options, source...), at(options+8, nonce...), goBack)
		g.when(step, length6(size+16), at(options, nonce...), at(options+8, source...), goBack)
	}
	for _, step := range []string{stepAdvert, stepSolicit, stepAsk} {
		g.when(step, anything, g.drops(network.SpoofND))
	}
}

// message6 matches a message of ICMPv6 without headers before it, length6 the length of all that follows the header.
func message6(kind byte) []expr.Any {
	return slices.Concat(at(next6, unix.IPPROTO_ICMPV6), at(icmp6, kind))
}

func length6(length uint16) []expr.Any { return at(4, byte(length>>8), byte(length)) }

// fragmentOf matches fragments of what begins with a header, which may push the next one into another fragment.
func fragmentOf(header byte) []expr.Any {
	return []expr.Any{
		&expr.Exthdr{DestRegister: 1, Type: unix.IPPROTO_FRAGMENT, Offset: 0, Len: 1, Op: expr.ExthdrOpIpv6},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{header}},
	}
}
