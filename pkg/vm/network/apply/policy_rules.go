package apply

import (
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// policed returns the rules of a tap on which policies hold, in nft's words, for what the guest sends:
//
//	TAP-out        ARP, neighbour discovery, DHCP: accept
//	               a known connection: renew it, accept
//	TAP-out-new    of each rule's peers: jump to its ports
//	               count as dropped, drop
//	TAP-out-P-R    of each port of rule R of policy P: count for P, goto TAP-out-pass
//	TAP-out-pass   remember the connection, accept
//
// and the same with in for what it receives. A direction that no policy is for lets everything pass and remembers it:
// the answers come in the other one.
func policed(tap string, of multipolicy.Interface) policyRules {
	r := policyRules{guardRules: guardRules{tap: tap, chains: map[string][][]expr.Any{}}}
	ingress, egress := of.Closed()
	for _, d := range []struct {
		step    string
		toGuest bool
		closed  bool
		of      func(*multipolicy.Policy) *multipolicy.Direction
	}{
		{stepOut, false, egress, func(p *multipolicy.Policy) *multipolicy.Direction { return p.Egress }},
		{stepIn, true, ingress, func(p *multipolicy.Policy) *multipolicy.Direction { return p.Ingress }},
	} {
		asked := d.step + "-" + partNew
		r.withoutAddresses(d.step, d.toGuest)
		r.known(d.step, d.toGuest)
		r.when(d.step, r.to(asked))
		r.pass(d.step, d.toGuest)
		if !d.closed {
			r.when(asked, r.to(d.step+"-"+partPass))
			continue
		}
		for i := range of.Policies {
			policy := &of.Policies[i]
			direction := d.of(policy)
			if direction == nil {
				continue
			}
			counted := r.counts(passedCounter(tap, d.step, policy.Name))
			for n := range direction.Rules {
				ports := fmt.Sprintf("%s-%d-%d", d.step, i, n)
				r.rule(asked, ports, &direction.Rules[n], d.toGuest)
				r.ports(ports, direction.Rules[n].Ports, counted, r.to(d.step+"-"+partPass))
			}
		}
		r.when(asked, r.counts(deniedCounter(tap, d.step)), drop())
	}
	return r
}

// rule has a rule's peers looked at by their ports.
func (r *policyRules) rule(asked, ports string, rule *multipolicy.Rule, toGuest bool) {
	if rule.Any {
		r.when(asked, r.through(ports))
		return
	}
	link := uint32(0) // of the frame's MAC that is the peer's
	if toGuest {
		link = 6
	}
	var macs [][]byte
	for _, text := range rule.MACs {
		if mac, err := net.ParseMAC(text); err == nil {
			macs = append(macs, mac)
		}
	}
	if len(macs) > 0 {
		set := r.set("m", nftables.TypeEtherAddr, macs)
		for _, p := range packets {
			r.when(asked, ethertype(p.ethertype), []expr.Any{
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: link, Len: 6},
				&expr.Lookup{SourceRegister: 1, SetName: set},
			}, r.through(ports))
		}
	}
	for _, p := range packets {
		var keys [][]byte
		for _, a := range rule.Addresses {
			if a.BitLen() == p.loopback.BitLen() {
				keys = append(keys, a.AsSlice())
			}
		}
		if len(keys) > 0 {
			set := r.set("a"+p.letter+"-", p.address, keys)
			r.when(asked, ethertype(p.ethertype), []expr.Any{
				p.peer(toGuest), &expr.Lookup{SourceRegister: 1, SetName: set},
			}, r.through(ports))
		}
		for n, b := range rule.Blocks {
			if b.CIDR.Addr().BitLen() != p.loopback.BitLen() {
				continue
			}
			next := ports
			if len(b.Except) > 0 {
				next = fmt.Sprintf("%s-%d", ports, n)
				for _, e := range b.Except {
					r.when(next, p.within(toGuest, e), goBack)
				}
				r.when(next, r.through(ports))
			}
			r.when(asked, ethertype(p.ethertype), p.within(toGuest, b.CIDR), r.through(next))
		}
	}
}

// set adds a set of addresses and returns its name.
func (r *policyRules) set(letter string, kind nftables.SetDatatype, keys [][]byte) string {
	s := newAddressSet(letter, kind, keys)
	r.sets = append(r.sets, s)
	return s.name
}

// peer loads the address of the other end.
func (p packet) peer(toGuest bool) expr.Any {
	offset := p.destination
	if toGuest {
		offset = p.source
	}
	return &expr.Payload{
		DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(p.loopback.BitLen() / 8),
	}
}

// within matches packets whose other end is in a range of addresses.
func (p packet) within(toGuest bool, cidr netip.Prefix) []expr.Any {
	if cidr.Bits() == 0 {
		return anything
	}
	size := cidr.Addr().BitLen() / 8
	return []expr.Any{
		p.peer(toGuest),
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: uint32(size),
			Mask: net.CIDRMask(cidr.Bits(), cidr.Addr().BitLen()), Xor: make([]byte, size),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: cidr.Masked().Addr().AsSlice()},
	}
}

// protocolNumbers are those of the protocols that have ports.
var protocolNumbers = map[corev1.Protocol]byte{
	corev1.ProtocolTCP: unix.IPPROTO_TCP, corev1.ProtocolUDP: unix.IPPROTO_UDP, corev1.ProtocolSCTP: unix.IPPROTO_SCTP,
}

// ports lets what has one of the ports pass; none are all.
func (r *policyRules) ports(step string, ports []multipolicy.Port, counted, pass []expr.Any) {
	if len(ports) == 0 {
		r.when(step, counted, pass)
	}
	for _, p := range ports {
		match := protocol(protocolNumbers[p.Protocol])
		if p.First > 0 || p.Last < math.MaxUint16 {
			match = append(match,
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: binaryutil.BigEndian.PutUint16(p.First)},
				&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: binaryutil.BigEndian.PutUint16(p.Last)})
		}
		r.when(step, match, counted, pass)
	}
}
