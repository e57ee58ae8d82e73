package apply

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// guardTable is the table of the bridge family with the guards of a plan. The family sees each frame that a port hands
// to its bridge, before anything else does, and a rule may name a port that is not there yet: a guard is there before
// its tap. (A chain of family netdev needs the tap, and goes with it.)
const guardTable = "virtkit-guard"

// steps are the chains of one tap, by what they look at.
const (
	stepFrame   = "frame"
	stepARP     = "arp"
	stepIPv4    = "ip"
	stepIPv6    = "ip6"
	stepTarget  = "target"
	stepSolicit = "solicitation"
	stepAdvert  = "advertisement"
	stepAsk     = "router-solicitation"
)

// guardRules are the rules of one tap by chain: frames go through stepFrame first. Chains look for what is honest, and
// end with a drop, wherever a field that is missing in a short frame would else let it through.
type guardRules struct {
	tap    string
	chains map[string][][]expr.Any
}

// Guard puts the guards of a plan into the network namespace ns, in one transaction: no frame passes between the rules
// of before and these, or is counted by both. Counters keep what they have.
func Guard(ns *os.File, plan network.Plan) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())), nftables.WithSockOptions(roomy))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	var all []guardRules
	for _, nic := range plan.Interfaces {
		if nic.Guard == nil {
			continue
		}
		rules, err := rulesOf(nic)
		if err != nil {
			return fmt.Errorf("interface %q: guard: %w", nic.Name, err)
		}
		all = append(all, rules)
	}
	t := conn.AddTable(&nftables.Table{Name: guardTable, Family: nftables.TableFamilyBridge})
	if len(all) == 0 {
		conn.DelTable(t)
		if err := conn.Flush(); err != nil && !noBridgeFamily(err) { // no table of such a kernel holds anything
			return fmt.Errorf("nftables: %w", err)
		}
		return nil
	}
	ports := conn.AddChain(&nftables.Chain{
		Name: "ports", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityRaw,
	})
	conn.FlushChain(ports)
	for _, rules := range all {
		rules.add(conn, t)
		conn.AddRule(&nftables.Rule{Table: t, Chain: ports, Exprs: slices.Concat(iif(rules.tap),
			verdict(expr.VerdictGoto, rules.chain(stepFrame)))})
	}
	if err := conn.Flush(); noBridgeFamily(err) {
		return fmt.Errorf("the node's kernel has no nftables for bridges (CONFIG_NF_TABLES_BRIDGE), which keep guests "+
			"from sending as others: %w", err)
	} else if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

// roomy gives a socket room for a transaction of many interfaces and the kernel's answers, of which each message has
// one.
func roomy(conn *netlink.Conn) error {
	const room = 16 << 20
	if err := conn.SetReadBuffer(room); err != nil {
		return err
	}
	return conn.SetWriteBuffer(room)
}

// noBridgeFamily reports that a kernel knows nothing of the bridge family.
func noBridgeFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

// Dropped returns how many frames the guards of a plan have dropped in the network namespace ns, by interface.
func Dropped(ns *os.File, plan network.Plan) (map[string]map[network.Spoof]uint64, error) {
	out := map[string]map[network.Spoof]uint64{}
	taps := map[string]string{}
	for _, nic := range plan.Interfaces {
		if nic.Guard != nil {
			taps[nic.Tap], out[nic.Name] = nic.Name, map[network.Spoof]uint64{}
		}
	}
	if len(taps) == 0 {
		return out, nil
	}
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	list, err := conn.GetObjects(&nftables.Table{Name: guardTable, Family: nftables.TableFamilyBridge})
	if err != nil {
		return nil, fmt.Errorf("read counters of table %s: %w", guardTable, err)
	}
	for _, o := range list {
		counter, ok := o.(*nftables.CounterObj)
		if !ok {
			continue
		}
		tap, kind, _ := strings.Cut(counter.Name, "-")
		if name, ok := taps[tap]; ok {
			out[name][network.Spoof(kind)] = counter.Packets
		}
	}
	return out, nil
}

// chain names a chain of the tap, counter the counter of a kind.
func (g guardRules) chain(step string) string { return g.tap + "-" + step }

func counterName(tap string, kind network.Spoof) string { return tap + "-" + string(kind) }

// add makes the chains with their rules in place of those that are there.
func (g guardRules) add(conn *nftables.Conn, t *nftables.Table) {
	for _, kind := range network.Spoofs {
		conn.AddObj(&nftables.CounterObj{Table: t, Name: counterName(g.tap, kind)})
	}
	chains := map[string]*nftables.Chain{}
	for step := range g.chains { // all of them first, since rules name them
		chains[step] = conn.AddChain(&nftables.Chain{Name: g.chain(step), Table: t})
		conn.FlushChain(chains[step])
	}
	for step, rules := range g.chains {
		for _, r := range rules {
			conn.AddRule(&nftables.Rule{Table: t, Chain: chains[step], Exprs: r})
		}
	}
}

// when adds a rule: the parts match, and then something is done.
func (g guardRules) when(step string, parts ...[]expr.Any) {
	g.chains[step] = append(g.chains[step], slices.Concat(parts...))
}

// drops counts a frame by its kind and drops it.
func (g guardRules) drops(kind network.Spoof) []expr.Any {
	return append([]expr.Any{&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: counterName(g.tap, kind)}},
		drop()...)
}

// to goes to another chain for good, through goes there and comes back if it returns.
func (g guardRules) to(step string) []expr.Any { return verdict(expr.VerdictGoto, g.chain(step)) }

func (g guardRules) through(step string) []expr.Any { return verdict(expr.VerdictJump, g.chain(step)) }

func verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

var (
	accept   = []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	goBack   = []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}
	anything []expr.Any
)

// at compares the bytes at an offset of the network header, which comes after one VLAN tag, if the frame has one.
func at(offset uint32, data ...byte) []expr.Any {
	return bytesAt(expr.PayloadBaseNetworkHeader, offset, expr.CmpOpEq, data)
}

func bytesAt(base expr.PayloadBase, offset uint32, op expr.CmpOp, data []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: uint32(len(data))},
		&expr.Cmp{Op: op, Register: 1, Data: data},
	}
}

// ethertype compares that of a frame, behind one VLAN tag; the kernel's own numbers are among them.
func ethertype(t uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(t)},
	}
}

// ports compares the bytes at an offset of the UDP header, wherever it is.
func udp(offset uint32, ports ...uint16) []expr.Any {
	var data []byte
	for _, p := range ports {
		data = append(data, binaryutil.BigEndian.PutUint16(p)...)
	}
	return append(protocol(unix.IPPROTO_UDP), bytesAt(expr.PayloadBaseTransportHeader, offset, expr.CmpOpEq, data)...)
}

// rulesOf returns the rules of an interface that has a guard.
func rulesOf(nic network.Interface) (guardRules, error) {
	g := guardRules{tap: nic.Tap, chains: map[string][][]expr.Any{}}
	mac, err := net.ParseMAC(nic.MAC)
	if err != nil {
		return g, err
	}
	g.frame(mac)
	g.arp(mac, nic.Guard)
	g.ipv4(nic.Guard)
	var router netip.Addr
	if nic.IPv6 != nil {
		router = nic.IPv6.Router
	}
	g.ipv6(mac, nic.Guard, router)
	return g, nil
}

// snap is the beginning of a frame that has a length for its type, and its type after that (RFC 1042). Receivers may
// take it for the same.
var snap = []byte{0xaa, 0xaa, 3, 0, 0, 0}

func (g guardRules) frame(mac net.HardwareAddr) {
	g.when(stepFrame, bytesAt(expr.PayloadBaseLLHeader, 6, expr.CmpOpNeq, mac), g.drops(network.SpoofMAC))
	// A tag within the one that is taken off already: receivers take off any number with VLAN 0.
	for _, tag := range []uint16{unix.ETH_P_8021Q, unix.ETH_P_8021AD} {
		g.when(stepFrame, ethertype(tag), g.drops(network.SpoofHidden))
	}
	g.when(stepFrame, ethertype(unix.ETH_P_802_2), at(0, snap...), g.drops(network.SpoofHidden))
	g.when(stepFrame, ethertype(unix.ETH_P_ARP), g.to(stepARP))
	g.when(stepFrame, ethertype(unix.ETH_P_RARP), g.to(stepARP)) // by which QEMU says that a guest has moved
	g.when(stepFrame, ethertype(unix.ETH_P_IP), g.to(stepIPv4))
	g.when(stepFrame, ethertype(unix.ETH_P_IPV6), g.to(stepIPv6))
}

func (g guardRules) arp(mac net.HardwareAddr, guard *network.Guard) {
	const sender, senderIP = 8, 14
	honest := slices.Concat(at(0, 0, 1, 8, 0, 6, 4), at(sender, mac...)) // Ethernet, IPv4
	if !guard.IPv4 {
		g.when(stepARP, honest, accept)
	} else {
		g.when(stepARP, honest, at(senderIP, 0, 0, 0, 0), accept) // asks whether somebody has an address
		for _, a := range guard.Addresses {
			if a.Is4() {
				g.when(stepARP, honest, at(senderIP, a.AsSlice()...), accept)
			}
		}
	}
	g.when(stepARP, anything, g.drops(network.SpoofARP))
}

func (g guardRules) ipv4(guard *network.Guard) {
	const dhcpServer, dhcpClient = 67, 68
	g.when(stepIPv4, udp(2, dhcpClient), g.drops(network.SpoofDHCP))
	if !guard.IPv4 {
		return
	}
	for _, a := range guard.Addresses {
		if a.Is4() {
			g.when(stepIPv4, at(ipv4.source, a.AsSlice()...), accept)
		}
	}
	g.when(stepIPv4, at(ipv4.source, 0, 0, 0, 0, 255, 255, 255, 255), udp(0, dhcpClient, dhcpServer), accept)
	g.when(stepIPv4, anything, g.drops(network.SpoofIP))
}
