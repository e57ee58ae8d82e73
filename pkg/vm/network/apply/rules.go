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

// family is one of the two families of addresses, of which each has a table of its own.
type family struct {
	table nftables.TableFamily
	proto uint32
	// loopback is the address at which the pod's own processes, `kubectl port-forward` among them, reach the guest.
	loopback netip.Addr
	// proxy is the address from which Istio's proxy passes on what came for the pod.
	proxy netip.Addr
	// source and destination are the offsets of the addresses in the header.
	source, destination uint32
}

var (
	ipv4 = family{
		nftables.TableFamilyIPv4, unix.NFPROTO_IPV4, netip.MustParseAddr("127.0.0.1"),
		netip.MustParseAddr("127.0.0.6"), 12, 16,
	}
	ipv6 = family{nftables.TableFamilyIPv6, unix.NFPROTO_IPV6, netip.IPv6Loopback(), netip.MustParseAddr("::6"), 8, 24}
)

// chains of a table, in nft's words:
//
//	prerouting:  iifname eth0 [tcp dport P] dnat to GUEST
//	output:      ip daddr GUEST dnat to GUEST
//	             ip daddr 127.0.0.1 tcp|udp [dport P] dnat to GUEST
//	postrouting: ip saddr GUEST oifname eth0 masquerade
//	             ip saddr 127.0.0.1 oifname BRIDGE snat to GATEWAY
//	forward:     iifname BRIDGE ip saddr != GUEST drop
//	             iifname BRIDGE oifname != BRIDGE drop          (bridge binding)
//	raw:         iifname BRIDGE ip daddr 127.0.0.0/8 drop
//
// and the same of ip6 with ::1, which the kernel takes from no link: raw is empty there. With a mesh's proxy in the pod
// the first three differ (proxied). What is sent to the guest itself from the pod's network, as by virt-handler
// (pkg/vm/network/reach), goes there: the first translation holds, and this one keeps a mesh, which may be the
// namespace's wish, from redirecting it to a proxy that answers in the guest's place.
type chains struct {
	prerouting, output, postrouting, forward, raw *nftables.Chain
}

func applyRules(ns *os.File, plan network.Plan) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	addTable(conn, ipv4, plan)
	// A kernel without IPv6 has no such table, and no such guest.
	if slices.ContainsFunc(plan.Interfaces, func(nic network.Interface) bool { return nic.IPv6 != nil }) {
		addTable(conn, ipv6, plan)
		addSilence(conn, plan)
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

// addTable replaces the table of a family.
func addTable(conn *nftables.Conn, f family, plan network.Plan) {
	t := conn.AddTable(&nftables.Table{Name: table, Family: f.table})
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
				iif(nic.BridgeLink), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, nic.BridgeLink), drop(),
			)})
			continue
		}
		for _, r := range f.rules(c, nic) {
			r.Table = t
			conn.AddRule(r)
		}
	}
}

// addSilence keeps the bridges of the bridge binding, which have a link-local address for the guest's DHCPv6, from
// speaking to the network that the guest is on, and from hearing it:
//
//	input:  iifname PODLINK ether type ip6 drop
//	output: oifname PODLINK ether type ip6 drop
func addSilence(conn *nftables.Conn, plan network.Plan) {
	var bridged []network.Interface
	for _, nic := range plan.Interfaces {
		if nic.Binding == network.Bridge && nic.IPv6 != nil {
			bridged = append(bridged, nic)
		}
	}
	if len(bridged) == 0 {
		return
	}
	t := conn.AddTable(&nftables.Table{Name: table, Family: nftables.TableFamilyBridge})
	conn.DelTable(t)
	conn.AddTable(t)
	chain := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{
			Name: name, Table: t, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter,
		})
	}
	input, output := chain("input", nftables.ChainHookInput), chain("output", nftables.ChainHookOutput)
	for _, nic := range bridged {
		conn.AddRule(&nftables.Rule{Table: t, Chain: input, Exprs: slices.Concat(iif(nic.PodLink), isIPv6(), drop())})
		conn.AddRule(&nftables.Rule{Table: t, Chain: output, Exprs: slices.Concat(oif(nic.PodLink), isIPv6(), drop())})
	}
}

// rules returns what a guest behind masquerade has in one family; none where it has no address in it.
func (f family) rules(c chains, nic network.Interface) []*nftables.Rule {
	guest, gateway := nic.Guest, nic.Gateway.Addr()
	if f == ipv6 {
		if nic.IPv6 == nil {
			return nil
		}
		guest, gateway = nic.IPv6.Guest, nic.IPv6.Gateway
	}
	if !guest.IsValid() {
		return nil
	}
	var out []*nftables.Rule
	var add adding = func(chain *nftables.Chain, parts ...[]expr.Any) {
		out = append(out, &nftables.Rule{Chain: chain, Exprs: slices.Concat(parts...)})
	}
	toGuest := f.nat(expr.NATTypeDestNAT, guest)
	add(c.output, address(f.destination, expr.CmpOpEq, guest), toGuest)
	if nic.Proxied {
		f.proxied(add, c, nic, toGuest)
	} else {
		f.forwarded(add, c, nic, toGuest)
	}
	add(c.postrouting, address(f.source, expr.CmpOpEq, guest), oif(nic.PodLink), []expr.Any{&expr.Masq{}})
	for _, from := range f.own(nic) {
		add(c.postrouting, address(f.source, expr.CmpOpEq, from), oif(nic.BridgeLink),
			f.nat(expr.NATTypeSourceNAT, gateway))
	}
	// A guest speaks for itself only; another source address would leave the pod untranslated.
	add(c.forward, iif(nic.BridgeLink), address(f.source, expr.CmpOpNeq, guest), drop())
	if f == ipv4 {
		// route_localnet would let the guest's frames to 127.0.0.1 in, to what listens for the pod alone.
		add(c.raw, iif(nic.BridgeLink), to127(), drop())
	}
	return out
}

// adding adds a rule of parts to a chain.
type adding func(chain *nftables.Chain, parts ...[]expr.Any)

// forwarded sends to the guest what comes for the pod, and what the pod's own processes send to loopback.
func (f family) forwarded(add adding, c chains, nic network.Interface, toGuest []expr.Any) {
	toLoopback := address(f.destination, expr.CmpOpEq, f.loopback)
	if len(nic.Ports) == 0 {
		add(c.prerouting, iif(nic.PodLink), toGuest)
		add(c.output, toLoopback, protocol(unix.IPPROTO_TCP), toGuest)
		add(c.output, toLoopback, protocol(unix.IPPROTO_UDP), toGuest)
	}
	for _, p := range nic.Ports {
		add(c.prerouting, iif(nic.PodLink), protocol(number(p)), port(p.Port), toGuest)
		add(c.output, toLoopback, protocol(number(p)), port(p.Port), toGuest)
	}
}

// number is IP's number of a port's protocol.
func number(p network.Port) byte {
	if p.Protocol == "UDP" {
		return unix.IPPROTO_UDP
	}
	return unix.IPPROTO_TCP
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

// to127 compares the first byte of the destination: 127.0.0.0/8.
func to127() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: ipv4.destination, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{127}},
	}
}

func isIPv6() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(unix.ETH_P_IPV6)},
	}
}

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

// address compares an address of the IP header.
func address(offset uint32, op expr.CmpOp, a netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Payload{
			DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(a.BitLen() / 8),
		},
		&expr.Cmp{Op: op, Register: 1, Data: a.AsSlice()},
	}
}

func protocol(p byte) []expr.Any { return protocols(expr.CmpOpEq, p) }

func protocols(op expr.CmpOp, p byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: []byte{p}},
	}
}

// port compares the destination port, which TCP and UDP have at the same place.
func port(p int32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(p))},
	}
}

func (f family) nat(kind expr.NATType, to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.NAT{Type: kind, Family: f.proto, RegAddrMin: 1},
	}
}
