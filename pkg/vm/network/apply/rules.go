package apply

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// table is the nftables table in the pod. It is replaced as a whole, in one transaction.
const table = "virtkit"

// loopback is the address at which the pod's own processes, `kubectl port-forward` among them, reach the guest.
var loopback = netip.MustParseAddr("127.0.0.1")

// chains of the table, in nft's words:
//
//	prerouting:  iifname eth0 [tcp dport P] dnat to GUEST
//	output:      ip daddr 127.0.0.1 tcp|udp [dport P] dnat to GUEST
//	postrouting: ip saddr GUEST oifname eth0 masquerade
//	             ip saddr 127.0.0.1 oifname BRIDGE snat to GATEWAY
//	forward:     iifname BRIDGE ip saddr != GUEST drop
//	             iifname BRIDGE oifname != BRIDGE drop          (bridge binding)
//	raw:         iifname BRIDGE ip daddr 127.0.0.0/8 drop
type chains struct {
	prerouting, output, postrouting, forward, raw *nftables.Chain
}

func applyRules(ns *os.File, plan network.Plan) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	t := conn.AddTable(&nftables.Table{Name: table, Family: nftables.TableFamilyIPv4})
	conn.DelTable(t)
	conn.AddTable(t)
	nat := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{
			Name: name, Table: t, Type: nftables.ChainTypeNAT, Hooknum: hook,
			Priority: priority,
		})
	}
	c := chains{
		prerouting:  nat("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
		output:      nat("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
		postrouting: nat("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
		forward: conn.AddChain(&nftables.Chain{
			Name: "forward", Table: t, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
		}),
		// Before connection tracking, which turns answers of the guest into ones to 127.0.0.1.
		raw: conn.AddChain(&nftables.Chain{
			Name: "raw", Table: t, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		}),
	}
	for _, nic := range plan.Interfaces {
		if nic.Binding == network.Tap || nic.Binding == network.SRIOV {
			continue
		}
		if nic.Binding == network.Bridge {
			// The pod may forward for masquerade; it does not join the guest's networks.
			conn.AddRule(&nftables.Rule{Table: t, Chain: c.forward, Exprs: slices.Concat(
				iif(nic.BridgeLink), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, nic.BridgeLink),
				[]expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}},
			)})
			continue
		}
		for _, r := range rules(c, nic) {
			r.Table = t
			conn.AddRule(r)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

func rules(c chains, nic network.Interface) []*nftables.Rule {
	var out []*nftables.Rule
	add := func(chain *nftables.Chain, parts ...[]expr.Any) {
		var all []expr.Any
		for _, p := range parts {
			all = append(all, p...)
		}
		out = append(out, &nftables.Rule{Chain: chain, Exprs: all})
	}
	toGuest := nat(expr.NATTypeDestNAT, nic.Guest)
	if len(nic.Ports) == 0 {
		add(c.prerouting, iif(nic.PodLink), toGuest)
		add(c.output, destination(loopback), protocol(unix.IPPROTO_TCP), toGuest)
		add(c.output, destination(loopback), protocol(unix.IPPROTO_UDP), toGuest)
	}
	for _, p := range nic.Ports {
		proto := byte(unix.IPPROTO_TCP)
		if p.Protocol == "UDP" {
			proto = unix.IPPROTO_UDP
		}
		add(c.prerouting, iif(nic.PodLink), protocol(proto), port(p.Port), toGuest)
		add(c.output, destination(loopback), protocol(proto), port(p.Port), toGuest)
	}
	add(c.postrouting, source(expr.CmpOpEq, nic.Guest), oif(nic.PodLink), []expr.Any{&expr.Masq{}})
	add(c.postrouting, source(expr.CmpOpEq, loopback), oif(nic.BridgeLink),
		nat(expr.NATTypeSourceNAT, nic.Gateway.Addr()))
	// A guest speaks for itself only; another source address would leave the pod untranslated.
	add(c.forward, iif(nic.BridgeLink), source(expr.CmpOpNeq, nic.Guest),
		[]expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	// route_localnet would let the guest's frames to 127.0.0.1 in, to what listens for the pod alone.
	add(c.raw, iif(nic.BridgeLink), toLoopback(), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	return out
}

// The matches and statements below load into register 1, compare, or act on it.

func iif(name string) []expr.Any { return link(expr.MetaKeyIIFNAME, expr.CmpOpEq, name) }
func oif(name string) []expr.Any { return link(expr.MetaKeyOIFNAME, expr.CmpOpEq, name) }

func link(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: data},
	}
}

func source(op expr.CmpOp, a netip.Addr) []expr.Any { return address(12, op, a) }
func destination(a netip.Addr) []expr.Any           { return address(16, expr.CmpOpEq, a) }

// toLoopback compares the first byte of the destination: 127.0.0.0/8.
func toLoopback() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{127}},
	}
}

// address compares four bytes of the IPv4 header.
func address(offset uint32, op expr.CmpOp, a netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Cmp{Op: op, Register: 1, Data: a.AsSlice()},
	}
}

func protocol(p byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{p}},
	}
}

// port compares the destination port, which TCP and UDP have at the same place.
func port(p int32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(p))},
	}
}

func nat(kind expr.NATType, to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.NAT{Type: kind, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
	}
}
