package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

var guestAddress6, nearAddress6 = netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::1")

// needIPv6 skips a test on a machine without.
func needIPv6(t *testing.T) {
	t.Helper()
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err != nil || string(off) != "0\n" {
		t.Skipf("this machine has no IPv6: %q, %v", off, err)
	}
}

// wire6 gives both ends of wire an IPv6 address, too.
func wire6(t *testing.T) (near, guest *os.File) {
	t.Helper()
	needIPv6(t)
	near, guest = wire(t)
	for name, end := range map[string]struct {
		ns      *os.File
		address netip.Addr
	}{"near": {near, nearAddress6}, "guest": {guest, guestAddress6}} {
		err := apply.In(end.ns, func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.AddrAdd(link, &netlink.Addr{
				IPNet: &net.IPNet{IP: end.address.AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD,
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return near, guest
}

// A guest is reached by IPv6 where it has no IPv4, and where it listens by IPv6 alone.
func TestGuestByIPv6(t *testing.T) {
	ns, guest := wire6(t)
	l := inside(t, guest, func() (net.Listener, error) { return net.Listen("tcp6", "["+guestAddress6.String()+"]:0") })
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	both := Known{Pod: append([]netip.Addr{guestAddress6}, known.Pod...), Node: known.Node}
	for _, binding := range []network.Binding{network.Masquerade, network.Bridge} {
		for name, four := range map[string]netip.Addr{"IPv6 alone": {}, "dual-stack": guestAddress} {
			p := planAt(binding, four)
			p.Interfaces[0].IPv6 = &network.IPv6{Guest: guestAddress6, Bits: 64}
			conn, err := Guest(t.Context(), ns, ns, p, both, TCP, port)
			if err != nil {
				t.Errorf("%s, %s: %v", binding, name, err)
				continue
			}
			conn.Close()
			if _, err := Guest(t.Context(), ns, ns, p, both, TCP, port-1); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s, %s: a port that nobody listens on: %v", binding, name, err)
			}
		}
	}
}

// A guest of a dual-stack pod that is configured for IPv6 alone does not answer for its IPv4 address, and the kernel
// says so after seconds, or never, as where frames are swallowed.
func TestGuestByIPv6Alone(t *testing.T) {
	ns, guest := wire6(t)
	l := inside(t, guest, func() (net.Listener, error) { return net.Listen("tcp6", "["+guestAddress6.String()+"]:0") })
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	nothing := func() error { return nil }
	// Frames for it arrive at the guest, which drops them.
	swallowed := func() error {
		link, err := netlink.LinkByName("near")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, IP: net.ParseIP("192.0.2.99"), State: netlink.NUD_PERMANENT,
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0x99},
		})
	}
	for name, test := range map[string]struct {
		four    netip.Addr
		prepare func() error
	}{
		"no host":       {netip.MustParseAddr("192.0.2.9"), nothing},
		"unreachable":   {netip.MustParseAddr("198.51.100.9"), nothing},
		"never answers": {netip.MustParseAddr("192.0.2.99"), swallowed},
	} {
		t.Run(name, func(t *testing.T) {
			if err := apply.In(ns, test.prepare); err != nil {
				t.Fatal(err)
			}
			p := planAt(network.Masquerade, test.four)
			p.Interfaces[0].IPv6 = &network.IPv6{Guest: guestAddress6, Bits: 64}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			conn, err := Guest(ctx, ns, ns, p, Known{}, TCP, port)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); got != guestAddress6 {
				t.Errorf("connected to %s", got)
			}
			if _, err := Guest(ctx, ns, ns, p, Known{}, TCP, port-1); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("the guest refused, and the error is %v", err)
			}
		})
	}
}

// What is refused of IPv4 is refused of IPv6.
func TestOnlyTheGuestsIPv6AddressIsDialled(t *testing.T) {
	ns, _ := wire6(t)
	for _, test := range []struct {
		name    string
		binding network.Binding
		address string
		known   Known
	}{
		{"the node's loopback", network.Bridge, "::1", Known{Pod: []netip.Addr{netip.IPv6Loopback()}}},
		{"the pod's loopback", network.Masquerade, "::1", known},
		{"the node's loopback by IPv4", network.Bridge, "::ffff:127.0.0.1", known},
		{"a link-local address", network.Bridge, "fe80::1", Known{Pod: []netip.Addr{netip.MustParseAddr("fe80::1")}}},
		{"the node's, by its routes", network.Bridge, nearAddress6.String(), Known{Pod: []netip.Addr{nearAddress6}}},
		{
			"the node's, by its status", network.Masquerade, "2001:db8::9",
			Known{Node: []netip.Addr{netip.MustParseAddr("2001:db8::9")}},
		},
		{"another host's", network.Bridge, guestAddress6.String(), known},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := planAt(test.binding, netip.Addr{})
			p.Interfaces[0].IPv6 = &network.IPv6{Guest: netip.MustParseAddr(test.address)}
			conn, err := Guest(t.Context(), ns, ns, p, test.known, TCP, 22)
			if conn != nil {
				conn.Close()
			}
			var refused *AddressError
			if !errors.As(err, &refused) {
				t.Errorf("dialled: %v", err)
			}
		})
	}
}
