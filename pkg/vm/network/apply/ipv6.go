package apply

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// applyIPv6 makes the bridge the guest's router (masquerade), or a host that speaks to the guest alone (bridge): it has
// a link-local address from which DHCPv6 is answered. Without IPv6 for the guest it has none.
func applyIPv6(nic network.Interface, bridge netlink.Link) error {
	if nic.IPv6 == nil {
		// The kernel would give the bridge a link-local address and router solicitations that the guest sees.
		err := sysctl("ipv6/conf/"+nic.BridgeLink+"/disable_ipv6", "1")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	for _, s := range []struct{ key, value string }{
		{"addr_gen_mode", "1"}, // no address of the kernel's choice
		{"accept_ra", "0"},     // the guest is no router of the pod's
		{"accept_redirects", "0"},
		{"disable_ipv6", "0"},
	} {
		if err := sysctl("ipv6/conf/"+nic.BridgeLink+"/"+s.key, s.value); err != nil {
			return err
		}
	}
	if err := ensureAddress6(bridge, netip.PrefixFrom(nic.LinkLocal6(), 64)); err != nil {
		return err
	}
	if nic.Binding != network.Masquerade {
		return nil
	}
	if err := ensureAddress6(bridge, netip.PrefixFrom(nic.IPv6.Gateway, nic.IPv6.Bits)); err != nil {
		return err
	}
	// Answers of the guest to ::1, where the pod's own processes reach it, come in by the bridge: the kernel looks for
	// ::1 only on the link that a packet came by. What the guest itself sends to ::1 it drops before.
	// For that the rules have to be asked by the pod and not by its bridge before, as nodes with br_netfilter want it.
	err := sysctl("bridge/bridge-nf-call-ip6tables", "0")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	own := &netlink.Route{
		LinkIndex: bridge.Attrs().Index, Dst: netlink.NewIPNet(net.IPv6loopback), Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Priority: behindLo,
	}
	if err := netlink.RouteReplace(own); err != nil {
		return fmt.Errorf("route to ::1 on %s: %w", nic.BridgeLink, err)
	}
	return forward6(nic.PodLink)
}

// behindLo is the metric of a route that stands behind that of the loopback link.
const behindLo = 2048

// forward6 makes the pod a router. A router does not take part in its own router's advertisements, by which the pod's
// link may have its default route, unless it is told to.
func forward6(podLink string) error {
	accept := "ipv6/conf/" + podLink + "/accept_ra"
	now, err := os.ReadFile("/proc/sys/net/" + accept)
	if err != nil {
		return fmt.Errorf("sysctl net/%s: %w", accept, err)
	}
	if strings.TrimSpace(string(now)) == "1" {
		if err := sysctl(accept, "2"); err != nil {
			return err
		}
	}
	return sysctl("ipv6/conf/all/forwarding", "1")
}

// ensureAddress6 adds an address that is good at once: nobody else on the link can have it, and there may be no carrier
// yet by which the kernel would look.
func ensureAddress6(link netlink.Link, prefix netip.Prefix) error {
	address := &netlink.Addr{
		IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
		Flags: unix.IFA_F_NODAD,
	}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("address %s on %s: %w", prefix, link.Attrs().Name, err)
	}
	return nil
}
