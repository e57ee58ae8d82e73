package apply

import (
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Connections that policies have let through are remembered in sets of the table itself, with the guest's end first, so
// that both directions look for the same. The kernel's own connection tracking does not see what a bridge forwards but
// with nf_conntrack_bridge, which kernels may lack; and it would know no tap from another: what a guest has begun on
// one network would be known on the next. An entry goes when nothing was sent for a while.
const (
	beginning     = 2 * time.Minute              // a TCP connection of which one packet was seen
	connected     = 2*time.Hour + 10*time.Minute // a TCP connection; keep-alives come after two hours
	datagrams     = 3 * time.Minute              // UDP
	otherwise     = time.Minute                  // echoes of ICMP, and protocols without ports
	fragments     = 30 * time.Second             // the rest of a packet whose first fragment was let through
	maxFlows      = 1 << 16                      // of a tap, in each family
	updateElement = uint32(unix.NFT_DYNSET_OP_UPDATE)
)

// The first 32-bit register of a key, and the width of an address in registers.
const firstRegister = unix.NFT_REG32_00

// packet is a family of addresses with what the policies need of its header.
type packet struct {
	family
	letter    string
	ethertype uint16
	icmp      byte
	echoReply byte
	address   nftables.SetDatatype
}

var (
	packet4 = packet{ipv4, "4", unix.ETH_P_IP, unix.IPPROTO_ICMP, 0, nftables.TypeIPAddr}
	packet6 = packet{ipv6, "6", unix.ETH_P_IPV6, unix.IPPROTO_ICMPV6, 129, nftables.TypeIP6Addr}
	packets = []packet{packet4, packet6}
)

// flowSets returns the sets of a tap's connections, without a table.
func flowSets(tap string) []*nftables.Set {
	var out []*nftables.Set
	for _, p := range packets {
		out = append(out,
			&nftables.Set{
				Name: tap + "-flows" + p.letter, Dynamic: true, HasTimeout: true, Timeout: otherwise, Size: maxFlows,
				Concatenation: true, KeyType: nftables.MustConcatSetType(p.address, p.address, nftables.TypeInetProto,
					nftables.TypeInetService, nftables.TypeInetService),
			},
			&nftables.Set{
				Name: tap + "-parts" + p.letter, Dynamic: true, HasTimeout: true, Timeout: fragments, Size: maxFlows,
				Concatenation: true, KeyType: nftables.MustConcatSetType(p.address, p.address),
			})
	}
	return out
}

// ends loads the addresses of a packet, the guest's first, and returns the register after them.
func (p packet) ends(toGuest bool) ([]expr.Any, uint32) {
	guest, peer := p.source, p.destination
	if toGuest {
		guest, peer = peer, guest
	}
	size := uint32(p.loopback.BitLen() / 8)
	return []expr.Any{
		&expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseNetworkHeader, Offset: guest, Len: size},
		&expr.Payload{
			DestRegister: firstRegister + size/4, Base: expr.PayloadBaseNetworkHeader, Offset: peer, Len: size,
		},
	}, firstRegister + 2*size/4
}

// flow loads the key of a packet's connection; without ports these are 0.
func (p packet) flow(toGuest, ports bool) []expr.Any {
	out, next := p.ends(toGuest)
	out = append(out, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next})
	if !ports {
		return append(out, &expr.Immediate{Register: next + 1, Data: make([]byte, 4)},
			&expr.Immediate{Register: next + 2, Data: make([]byte, 4)})
	}
	guest, peer := uint32(0), uint32(2)
	if toGuest {
		guest, peer = peer, guest
	}
	return append(out,
		&expr.Payload{DestRegister: next + 1, Base: expr.PayloadBaseTransportHeader, Offset: guest, Len: 2},
		&expr.Payload{DestRegister: next + 2, Base: expr.PayloadBaseTransportHeader, Offset: peer, Len: 2})
}

func isIn(set string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: firstRegister, SetName: set}}
}

// remember adds the key that is loaded to a set, or renews it. Where the set is full the rule ends there.
func remember(set string, d time.Duration) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: firstRegister, SetName: set, Operation: updateElement, Timeout: d}}
}

// kind is a kind of packets in a connection.
type kind struct {
	match []expr.Any
	ports bool
	// first is how long a connection is remembered when one begins, then when it goes on.
	first, then time.Duration
	// answer further matches what may answer; nil for all.
	answer []expr.Any
}

func (p packet) kinds() []kind {
	other := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}}
	for _, known := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, p.icmp} {
		other = append(other, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{known}})
	}
	return []kind{
		{protocol(unix.IPPROTO_TCP), true, beginning, connected, nil},
		{protocol(unix.IPPROTO_UDP), true, datagrams, datagrams, nil},
		{protocol(unix.IPPROTO_SCTP), true, beginning, connected, nil},
		{protocol(p.icmp), false, otherwise, otherwise, transport(0, p.echoReply)},
		{other, false, otherwise, otherwise, nil},
	}
}

// transport compares bytes of the transport header, which the first fragment of a packet has alone.
func transport(offset uint32, data ...byte) []expr.Any {
	return bytesAt(expr.PayloadBaseTransportHeader, offset, expr.CmpOpEq, data)
}

// opens matches the packet by which a TCP connection is opened, SYN without ACK.
func opens() []expr.Any {
	const flags, syn, ack = 13, 0x02, 0x10
	return append(protocol(unix.IPPROTO_TCP),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{syn}})
}

// later matches fragments of a packet but the first, more the others but the last.
func (p packet) later() []expr.Any { return p.fragment(0x1f, 0xff, 0xff, 0xf8) }

func (p packet) more() []expr.Any { return p.fragment(0x20, 0x00, 0x00, 0x01) }

// fragment matches packets with one of the bits of a mask in the field that has the fragment's offset.
func (p packet) fragment(high4, low4, high6, low6 byte) []expr.Any {
	load, mask := expr.Any(&expr.Payload{
		DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 6, Len: 2,
	}), []byte{high4, low4}
	if p.proto == unix.NFPROTO_IPV6 {
		load, mask = &expr.Exthdr{
			DestRegister: 1, Type: unix.IPPROTO_FRAGMENT, Offset: 2, Len: 2, Op: expr.ExthdrOpIpv6,
		}, []byte{high6, low6}
	}
	return []expr.Any{
		load,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: mask, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0, 0}},
	}
}

// known lets through what belongs to a connection that was let through. What opens a TCP connection never does:
// policies are asked about it again.
func (r policyRules) known(step string, toGuest bool) {
	for _, p := range packets {
		ends, _ := p.ends(toGuest)
		r.when(step, ethertype(p.ethertype), p.later(), ends, isIn(r.tap+"-parts"+p.letter), accept)
	}
	r.when(step, opens(), r.to(step+"-"+partNew))
	for _, p := range packets {
		set := r.tap + "-flows" + p.letter
		for _, k := range p.kinds() {
			r.when(step, ethertype(p.ethertype), k.match, k.answer, p.flow(toGuest, k.ports), isIn(set),
				remember(set, k.then), r.to(stepDone+"-"+step))
		}
	}
}

// pass remembers a connection that is let through, and done the fragments that follow.
func (r policyRules) pass(step string, toGuest bool) {
	for _, p := range packets {
		for _, k := range p.kinds() {
			r.when(step+"-"+partPass, ethertype(p.ethertype), k.match, p.flow(toGuest, k.ports),
				remember(r.tap+"-flows"+p.letter, k.first))
		}
	}
	r.when(step+"-"+partPass, r.to(stepDone+"-"+step))
	done := stepDone + "-" + step
	for _, p := range packets {
		ends, _ := p.ends(toGuest)
		r.when(done, ethertype(p.ethertype), p.more(), ends, remember(r.tap+"-parts"+p.letter, fragments))
	}
	r.when(done, accept)
}

// withoutAddresses lets through that by which hosts find each other and get addresses, before policies can speak of
// them: ARP, neighbour discovery, the groups that this needs, and DHCP.
func (r policyRules) withoutAddresses(step string, toGuest bool) {
	r.when(step, ethertype(unix.ETH_P_ARP), accept)
	r.when(step, ethertype(unix.ETH_P_RARP), accept) // by which QEMU says that a guest has moved
	r.linkMessages(step, 1, listenerMessages)
	r.linkMessages(step, 255, neighbourMessages)
	const server4, client4, server6, client6 = 67, 68, 547, 546
	if toGuest {
		r.when(step, ethertype(unix.ETH_P_IP), udp(0, server4, client4), accept)
		r.when(step, ethertype(unix.ETH_P_IPV6), udp(0, server6, client6), accept)
		// Errors of packets that the guest has sent: without them it finds no path's MTU.
		for _, message := range []byte{3, 11, 12} {
			r.when(step, ethertype(unix.ETH_P_IP), protocol(unix.IPPROTO_ICMP), transport(0, message), accept)
		}
		for _, message := range []byte{1, 2, 3, 4} {
			r.when(step, ethertype(unix.ETH_P_IPV6), protocol(unix.IPPROTO_ICMPV6), transport(0, message), accept)
		}
		return
	}
	r.when(step, ethertype(unix.ETH_P_IP), at(ipv4.destination, 255, 255, 255, 255), udp(0, client4, server4), accept)
	r.when(step, ethertype(unix.ETH_P_IPV6), at(ipv6.destination, allServers.AsSlice()...), udp(0, client6, server6),
		accept)
}

// linkMessages lets messages of ICMPv6 through that hosts of a link send to each other, by the hops that they have
// left.
func (r policyRules) linkMessages(step string, hops byte, messages []byte) {
	for _, message := range messages {
		r.when(step, ethertype(unix.ETH_P_IPV6), at(hops6, hops), protocol(unix.IPPROTO_ICMPV6), transport(0, message),
			accept)
	}
}

var (
	// allServers are the servers and relays of DHCPv6 on a link.
	allServers = netip.MustParseAddr("ff02::1:2")
	// listenerMessages are those of multicast listener discovery.
	listenerMessages  = []byte{130, 131, 132, 143}
	neighbourMessages = []byte{
		routerSolicitation, routerAdvertisement, neighborSolicitation, neighborAdvertisement, redirect,
	}
)
