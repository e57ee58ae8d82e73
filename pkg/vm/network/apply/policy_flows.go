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
// one network would be known on the next.
//
//	TAP-begun-out, -begun-in   one side has sent; of each side there is room for as many, whatever the other one sends
//	TAP-flows                  the other side has answered
//	TAP-closing                a TCP connection of which one side has said that it ends (FIN, RST)
//
// An entry goes when nothing was sent for a while. One that a full set does not take is not remembered, and counted:
// what answers it is asked about as if it began a connection.
const (
	beginning     = 2 * time.Minute              // a TCP connection that nobody has answered, or that ends
	connected     = 2*time.Hour + 10*time.Minute // a TCP connection; keep-alives come after two hours
	datagrams     = 3 * time.Minute              // UDP
	otherwise     = time.Minute                  // echoes of ICMP, and protocols without ports
	fragments     = 30 * time.Second             // the rest of a packet whose first fragment was let through
	fading        = time.Second                  // a connection that another set has by now
	updateElement = uint32(unix.NFT_DYNSET_OP_UPDATE)
	deleteElement = uint32(2) // NFT_DYNSET_OP_DELETE
)

// maxFlows is how many elements a set has room for, maxClosing that of connections that end.
var maxFlows, maxClosing uint32 = 1 << 16, 1 << 16

// Sets of a tap's connections, each once in each family.
const (
	setFlows   = "flows"
	setBegun   = "begun-" // and the direction
	setClosing = "closing"
	setParts   = "parts"
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
		for name, size := range map[string]uint32{
			setFlows: maxFlows, setBegun + stepOut: maxFlows, setBegun + stepIn: maxFlows, setClosing: maxClosing,
		} {
			out = append(out, &nftables.Set{
				Name: tap + "-" + name + p.letter, Dynamic: true, HasTimeout: true, Timeout: otherwise, Size: size,
				Concatenation: true, KeyType: nftables.MustConcatSetType(p.address, p.address, nftables.TypeInetProto,
					nftables.TypeInetService, nftables.TypeInetService),
			})
		}
		out = append(out, &nftables.Set{
			Name: tap + "-" + setParts + p.letter, Dynamic: true, HasTimeout: true, Timeout: fragments, Size: maxFlows,
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

// forget takes the key that is loaded out of a set, if it is there. Kernels before 5.4 do not know how, and some after
// that go on to count it: it is for what is rare.
func forget(set string) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: firstRegister, SetName: set, Operation: deleteElement}}
}

// kind is a kind of packets in a connection.
type kind struct {
	match []expr.Any
	ports bool
	// first is how long a connection is remembered when one begins, then when it was answered.
	first, then time.Duration
	// answer further matches what may answer; nil for all.
	answer []expr.Any
	// ends matches what ends a connection; nil for nothing.
	ends []expr.Any
}

func (p packet) kinds() []kind {
	other := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}}
	for _, known := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, p.icmp} {
		other = append(other, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{known}})
	}
	return []kind{
		{match: flags(), ports: true, first: beginning, then: connected, ends: flags(tcpFIN, tcpRST)},
		{match: protocol(unix.IPPROTO_UDP), ports: true, first: datagrams, then: datagrams},
		{match: protocol(unix.IPPROTO_SCTP), ports: true, first: beginning, then: connected},
		{match: protocol(p.icmp), first: otherwise, then: otherwise, answer: transport(0, p.echoReply)},
		{match: other, first: otherwise, then: otherwise},
	}
}

// Bits of TCP's flags.
const tcpFIN, tcpSYN, tcpRST, tcpACK byte = 0x01, 0x02, 0x04, 0x10

// flags matches packets of TCP with one of some flags; without any, all whose flags are there to be read, which a first
// fragment may be too short for.
func flags(bits ...byte) []expr.Any {
	const offset = 13
	out := append(protocol(unix.IPPROTO_TCP),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1})
	if len(bits) == 0 {
		return out
	}
	mask := byte(0)
	for _, bit := range bits {
		mask |= bit
	}
	return append(out,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0}})
}

// transport compares bytes of the transport header, which the first fragment of a packet has alone.
func transport(offset uint32, data ...byte) []expr.Any {
	return bytesAt(expr.PayloadBaseTransportHeader, offset, expr.CmpOpEq, data)
}

// opens matches the packet by which a TCP connection is opened, SYN without ACK.
func opens() []expr.Any {
	return append(flags(),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpSYN | tcpACK}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{tcpSYN}})
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
func (r *policyRules) known(step string, toGuest bool) {
	for _, p := range packets {
		ends, _ := p.ends(toGuest)
		r.when(step, ethertype(p.ethertype), p.later(), ends, isIn(r.flowSet(setParts, p)), accept)
	}
	r.when(step, opens(), r.to(step+"-"+partNew))
	theirs := map[string]string{stepOut: stepIn, stepIn: stepOut}[step]
	done := r.to(stepDone + "-" + step)
	for _, p := range packets {
		flows, closing := r.flowSet(setFlows, p), r.flowSet(setClosing, p)
		mine, answered := r.flowSet(setBegun+step, p), r.flowSet(setBegun+theirs, p)
		for _, k := range p.kinds() {
			// in has what is in a set do something: all of a kind, or what also matches.
			in := func(set string, match []expr.Any, do ...[]expr.Any) {
				all := append([][]expr.Any{
					ethertype(p.ethertype), k.match, match, p.flow(toGuest, k.ports), isIn(set),
				}, do...)
				r.when(step, all...)
			}
			if k.ends != nil {
				for _, set := range []string{flows, answered, mine} {
					in(set, k.ends, remember(closing, k.first), remember(set, fading), done)
					in(set, k.ends, remember(set, k.first), done) // which closing has no room for
				}
				in(closing, nil, remember(closing, k.first), done)
			}
			in(flows, k.answer, remember(flows, k.then), done)
			in(answered, k.answer, remember(flows, k.then), done)
			in(answered, k.answer, r.counts(forgottenCounter(r.tap)), done) // which flows has no room for
			if k.answer == nil {
				in(mine, nil, remember(mine, k.first), done)
			}
		}
	}
}

func (r policyRules) flowSet(name string, p packet) string { return r.tap + "-" + name + p.letter }

// pass remembers a connection that is let through, and done the fragments that follow.
func (r *policyRules) pass(step string, toGuest bool) {
	done := stepDone + "-" + step
	for _, p := range packets {
		for _, k := range p.kinds() {
			exprs := [][]expr.Any{ethertype(p.ethertype), k.match, p.flow(toGuest, k.ports)}
			if k.ends != nil {
				exprs = append(exprs, forget(r.flowSet(setClosing, p)))
			}
			r.when(step+"-"+partPass, append(exprs, remember(r.flowSet(setBegun+step, p), k.first), r.to(done))...)
		}
	}
	for _, p := range packets { // what the sets have no room for
		r.when(step+"-"+partPass, ethertype(p.ethertype), r.counts(forgottenCounter(r.tap)), r.to(done))
	}
	r.when(step+"-"+partPass, r.to(done))
	for _, p := range packets {
		ends, _ := p.ends(toGuest)
		r.when(done, ethertype(p.ethertype), p.more(), ends, remember(r.flowSet(setParts, p), fragments))
	}
	r.when(done, accept)
}

// withoutAddresses lets through that by which hosts find each other and get addresses, before policies can speak of
// them: ARP, neighbour discovery, the groups that this needs, and DHCP.
func (r policyRules) withoutAddresses(step string, toGuest bool) {
	r.when(step, ethertype(unix.ETH_P_ARP), accept)
	r.when(step, ethertype(unix.ETH_P_RARP), accept) // by which QEMU says that a guest has moved
	r.linkMessages(step, 1, listenerMessages)
	if toGuest {
		r.linkMessages(step, 255, []byte{routerAdvertisement, redirect})
	}
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
	listenerMessages = []byte{130, 131, 132, 143}
	// neighbourMessages are those that every host may send.
	neighbourMessages = []byte{routerSolicitation, neighborSolicitation, neighborAdvertisement}
)
