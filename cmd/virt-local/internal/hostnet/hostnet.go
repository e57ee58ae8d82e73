// Package hostnet is an instance's network as far as the machine sees it: a bridge with the
// machine's address on it, one cable to each node, a route to each node's pods, and masquerading
// for what leaves the machine. All of it is named after the instance's slot, so that it can be found
// and removed without any record.
//
//	machine                    vlocalS 10.99.S.1 ── API server, DNS, kubectl
//	   │ routes to pods           │
//	   │                 ┌────────┴────────┐
//	   │            vlocalS-n1        vlocalS-n2
//	   │                 │ eth0            │ eth0         (in the nodes' network namespaces)
//	   └───────────►  10.99.S.11        10.99.S.12
//	                  pods 10.P.1.0/24  pods 10.P.2.0/24
//
// With IPv6 all of them have an address of that family, too, and the same routes. Nobody looks for duplicates of the
// addresses, which follow from the slot: they are usable at once. Nobody there listens to router advertisements.
//
// Nodes reach each other's pods by routes of their own, over the bridge, without the machine's help.
package hostnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// Up makes the bridge, the machine's address and the firewall table. It changes nothing that is
// already right.
func Up(in *instance.Instance) error {
	name := in.Slot.Bridge()
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("add bridge %s: %w", name, err)
		}
		link, err = netlink.LinkByName(name)
	}
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", name, err)
	}
	// A bridge without an address of its own takes that of a port, another when the port goes: when a node dies, the
	// others would for seconds send to a machine that is no more.
	if mac := bridgeMAC(in.Slot); !bytes.Equal(link.Attrs().HardwareAddr, mac) {
		if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
			return fmt.Errorf("set hardware address of bridge %s: %w", name, err)
		}
	}
	if in.Has(instance.V6) {
		if err := sixSettings(name); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set bridge %s up: %w", name, err)
	}
	for _, f := range in.Families() {
		if err := netlink.AddrReplace(link, address(in.Slot.HostIP(f), in.Slot.NodeNet(f))); err != nil {
			return fmt.Errorf("set address of bridge %s: %w", name, err)
		}
	}
	if in.Multus {
		if err := upLANs(in); err != nil {
			return err
		}
	}
	for _, f := range in.Families() {
		if err := ensureTable(in, f); err != nil {
			return err
		}
	}
	return nil
}

// address returns an address within its network, usable at once.
func address(ip netip.Addr, network netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(ip, network.Bits()))}
	if ip.Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// bridgeMAC returns the bridge's address, a locally administered one.
func bridgeMAC(s instance.Slot) net.HardwareAddr {
	return net.HardwareAddr{0x02, 'v', 'l', 'o', 'c', byte(s)}
}

// nodeMAC returns the hardware address of node k's end of its cable. A node that is started again has it again: its
// neighbours would else for up to a minute send what is IPv6 to the one that it had.
func nodeMAC(s instance.Slot, k int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 'v', 'l', 'n', byte(s), byte(k)}
}

// Down removes all that Up and Connect made.
func Down(in *instance.Instance) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	ours := map[string]bool{in.Slot.Bridge(): true}
	for _, name := range lanLinks(in.Slot) {
		ours[name] = true
	}
	for k := 1; k <= instance.MaxNodes; k++ {
		ours[in.Slot.Port(k)] = true
	}
	for _, link := range links {
		if ours[link.Attrs().Name] {
			if err := deleteLink(link); err != nil {
				return err
			}
		}
	}
	for _, f := range in.Families() {
		if err := deleteTable(in, f); err != nil {
			return err
		}
	}
	return nil
}

func deleteLink(link netlink.Link) error {
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) &&
		!errors.As(err, new(netlink.LinkNotFoundError)) {
		return fmt.Errorf("delete link %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// Connect lays the cable between the bridge and the network namespace of process pid, the init of node n,
// and gives both ends addresses and routes.
func Connect(n instance.Node, pid int) error {
	port := n.Slot.Port(n.Number)
	if err := Disconnect(n); err != nil {
		return err
	}
	bridge, err := netlink.LinkByName(n.Slot.Bridge())
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", n.Slot.Bridge(), err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = port, bridge.Attrs().Index
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid),
		PeerHardwareAddr: nodeMAC(n.Slot, n.Number),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect %s to the bridge: %w", n.NodeName(), err)
	}
	link, err := netlink.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find link %s: %w", port, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", port, err)
	}
	for _, f := range n.Families() {
		if err := netlink.RouteReplace(podRoute(n.Slot, f, n.Number)); err != nil {
			return fmt.Errorf("add route to the pods of %s: %w", n.NodeName(), err)
		}
	}
	if n.Multus {
		if err := connectLANs(n, pid); err != nil {
			return err
		}
	}
	return inside(n, pid)
}

// Disconnect removes what a dead node left: the kernel removes cables when one end's namespace
// goes, but only some time after the last process there.
func Disconnect(n instance.Node) error {
	names := []string{n.Slot.Port(n.Number)}
	for j := 1; j <= instance.LANs; j++ {
		names = append(names, n.Slot.LANPort(j, n.Number))
	}
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find link %s: %w", name, err)
		}
		if err := deleteLink(link); err != nil {
			return err
		}
	}
	return nil
}

// enter opens a node's network namespace.
func enter(n instance.Node, pid int) (*netlink.Handle, error) {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("open network namespace of %s: %w", n.NodeName(), err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open network namespace of %s: %w", n.NodeName(), err)
	}
	return h, nil
}

// inside sets up the node's end of the cable. The routes to other nodes' pods are for all nodes that
// can be, so that a node which joins later changes nothing on those that run.
func inside(n instance.Node, pid int) error {
	h, err := enter(n, pid)
	if err != nil {
		return err
	}
	defer h.Close()
	if n.Has(instance.V6) {
		if err := within(n, pid, nodeSixSettings); err != nil {
			return err
		}
	}
	for _, name := range []string{"lo", "eth0"} {
		link, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s in %s: %w", name, n.NodeName(), err)
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up in %s: %w", name, n.NodeName(), err)
		}
		if name == "lo" {
			continue
		}
		for _, f := range n.Families() {
			if err := h.AddrReplace(link, address(n.Slot.NodeIP(f, n.Number), n.Slot.NodeNet(f))); err != nil {
				return fmt.Errorf("set address of %s: %w", n.NodeName(), err)
			}
		}
	}
	for _, f := range n.Families() {
		for _, r := range nodeRoutes(n, f) {
			if err := h.RouteReplace(r); err != nil {
				return fmt.Errorf("add route to %s in %s: %w", r.Dst, n.NodeName(), err)
			}
		}
	}
	return nil
}

// nodeRoutes returns a node's routes of a family: to the machine what is for nobody else, and to the other nodes what
// is for their pods.
func nodeRoutes(n instance.Node, f instance.Family) []*netlink.Route {
	host := n.Slot.HostIP(f)
	everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if f == instance.V6 {
		everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	routes := []*netlink.Route{{Dst: ipNet(everything), Gw: net.IP(host.AsSlice())}}
	for k := 1; k <= instance.MaxNodes; k++ {
		if k != n.Number {
			routes = append(routes, podRoute(n.Slot, f, k))
		}
	}
	return routes
}

// podRoute returns the route to the pods of node k.
func podRoute(s instance.Slot, f instance.Family, k int) *netlink.Route {
	return &netlink.Route{Dst: ipNet(s.NodePodNet(f, k)), Gw: net.IP(s.NodeIP(f, k).AsSlice())}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: net.IP(p.Addr().AsSlice()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
