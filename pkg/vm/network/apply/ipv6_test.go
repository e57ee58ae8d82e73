package apply

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// needIPv6 skips a test on a machine without.
func needIPv6(t *testing.T) {
	t.Helper()
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err != nil || string(off) != "0\n" {
		t.Skipf("this machine has no IPv6: %q, %v", off, err)
	}
}

// addresses gives a link of a namespace addresses that are good at once.
func addresses(t *testing.T, ns *os.File, name string, cidrs ...string) {
	t.Helper()
	run(t, ns, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, cidr := range cidrs {
			addr, err := netlink.ParseAddr(cidr)
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
		}
		return nil
	})
}

// masquerade6 is an interface with both families, or with IPv6 alone.
func masquerade6(dual bool) network.Interface {
	nic := masquerade()
	nic.PodIPs = append(nic.PodIPs, netip.MustParseAddr("fd42::5"))
	nic.IPv6 = &network.IPv6{
		Guest: netip.MustParseAddr("fd10:0:2::2"), Bits: 120, Gateway: netip.MustParseAddr("fd10:0:2::1"),
		Router: nic.LinkLocal6(),
	}
	if !dual {
		nic.PodIPs, nic.Guest, nic.Gateway = nic.PodIPs[1:], netip.Addr{}, netip.Prefix{}
	}
	return nic
}

// attachGuest6 puts a guest on the plan's bridge, with its IPv6 address and routes as it would have made them.
func attachGuest6(t *testing.T, pod, guest *os.File, nic network.Interface, via netip.Addr) {
	t.Helper()
	four := nic
	if !nic.Guest.IsValid() { // it has one, but nobody knows it
		four.Guest, four.Gateway = netip.MustParseAddr("192.0.2.2"), netip.MustParsePrefix("192.0.2.1/24")
	}
	attachGuest(t, pod, guest, four)
	addresses(t, guest, "eth0", nic.IPv6.Prefix().String())
	run(t, guest, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: via.AsSlice()})
	})
}

// dualPod wires a pod with both families to a peer.
func dualPod(t *testing.T, dual bool) (pod, peer, guest *os.File) {
	t.Helper()
	needIPv6(t)
	pod, peer, guest = newNetns(t), newNetns(t), newNetns(t)
	four := [2]string{}
	if dual {
		four = [2]string{"10.42.1.5/24", "10.42.1.1/24"}
	}
	wire(t, pod, "eth0", four[0], peer, "eth0", four[1])
	addresses(t, pod, "eth0", "fd42::5/64")
	addresses(t, peer, "eth0", "fd42::1/64")
	if dual {
		run(t, pod, defaultRoute("10.42.1.1"))
	}
	run(t, pod, defaultRoute("fd42::1"))
	return pod, peer, guest
}

func TestMasqueradeDualStack(t *testing.T) {
	for _, dual := range []bool{true, false} {
		t.Run(fmt.Sprintf("dual=%t", dual), func(t *testing.T) {
			pod, peer, guest := dualPod(t, dual)
			plan := network.Plan{Interfaces: []network.Interface{masquerade6(dual)}}
			for range 2 { // The second time changes nothing and must not fail.
				if err := Apply(pod, plan); err != nil {
					t.Fatal(err)
				}
			}
			// The guest's router is known to it by its link-local address, as by router advertisements.
			attachGuest6(t, pod, guest, plan.Interfaces[0], plan.Interfaces[0].IPv6.Router)
			serve(t, guest, 8080)
			serve(t, peer, 9090)
			check := func(when string) {
				t.Helper()
				wantAnswer(t, when+": the network reaches the guest", peer, "[fd42::5]:8080", "fd42::1")
				wantAnswer(t, when+": the pod reaches the guest", pod, "[::1]:8080", "fd10:0:2::1")
				wantAnswer(t, when+": the guest reaches the network", guest, "[fd42::1]:9090", "fd42::5")
				if dual {
					wantAnswer(t, when+": IPv4 in", peer, "10.42.1.5:8080", "10.42.1.1")
					wantAnswer(t, when+": IPv4 from the pod", pod, "127.0.0.1:8080", "10.0.2.1")
					wantAnswer(t, when+": IPv4 out", guest, "10.42.1.1:9090", "10.42.1.5")
				}
			}
			check("at first")
			if err := Apply(pod, plan); err != nil {
				t.Fatal(err)
			}
			check("applied again")
		})
	}
}

// A guest as KubeVirt's users configure it by cloud-init: a static address, and the gateway by its global address.
func TestMasqueradeStaticIPv6(t *testing.T) {
	pod, peer, guest := dualPod(t, true)
	nic := masquerade6(true)
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	attachGuest6(t, pod, guest, nic, nic.IPv6.Gateway)
	serve(t, guest, 8080)
	serve(t, peer, 9090)
	wantAnswer(t, "in", peer, "[fd42::5]:8080", "fd42::1")
	wantAnswer(t, "out", guest, "[fd42::1]:9090", "fd42::5")
}

func TestMasqueradeListedPortsIPv6(t *testing.T) {
	pod, peer, guest := dualPod(t, true)
	nic := masquerade6(true)
	nic.Ports = []network.Port{{Protocol: "TCP", Port: 8080}, {Protocol: "UDP", Port: 8081}}
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	attachGuest6(t, pod, guest, nic, nic.IPv6.Router)
	serve(t, guest, 8080)
	serve(t, guest, 8081)
	wantAnswer(t, "listed", peer, "[fd42::5]:8080", "fd42::1")
	wantAnswer(t, "listed, from the pod", pod, "[::1]:8080", "fd10:0:2::1")
	if got, err := ask(peer, "[fd42::5]:8081"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port that is not listed for TCP answered %q, %v; want connection refused", got, err)
	}
}

// Another source address than the guest's does not leave the pod, and ::1 is not the guest's to speak to.
func TestGuestCannotSpoofIPv6(t *testing.T) {
	pod, peer, guest := dualPod(t, true)
	nic := masquerade6(true)
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	attachGuest6(t, pod, guest, nic, nic.IPv6.Router)
	addresses(t, guest, "lo", "fd42::77/128", "fd10:0:2::99/128")
	serve(t, peer, 9090)
	serve(t, guest, 8080)
	wantAnswer(t, "the network is up", guest, "[fd42::1]:9090", "fd42::5")
	wantAnswer(t, "the pod reaches the guest", pod, "[::1]:8080", "fd10:0:2::1")
	listen := func(ns *os.File) net.PacketConn {
		var sniff net.PacketConn
		run(t, ns, func() (err error) {
			sniff, err = net.ListenPacket("udp6", ":7000")
			return err
		})
		t.Cleanup(func() { sniff.Close() })
		return sniff
	}
	first := func(sniff net.PacketConn) string {
		t.Helper()
		if err := sniff.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		n, _, err := sniff.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	out := listen(peer)
	for _, from := range []string{"fd42::77", "fd10:0:2::99", "fd10:0:2::2"} {
		run(t, guest, func() error {
			c, err := net.DialUDP("udp6", &net.UDPAddr{IP: net.ParseIP(from)},
				&net.UDPAddr{IP: net.ParseIP("fd42::1"), Port: 7000})
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte(from))
			return err
		})
	}
	if got := first(out); got != "fd10:0:2::2" {
		t.Errorf("the first datagram that got out is from %s; want the guest's own", got)
	}
	private := listen(pod)
	for _, to := range []string{"::1", "fd10:0:2::1"} {
		if err := sendFrame6(guest, nic, netip.MustParseAddr(to), 7000, to); err != nil {
			t.Fatal(err)
		}
	}
	if got := first(private); got != "fd10:0:2::1" {
		t.Errorf("the first datagram that came in was to %s; want the one to the gateway", got)
	}
}

// sendFrame6 is sendFrame for IPv6: a UDP datagram to the bridge's MAC.
func sendFrame6(guest *os.File, nic network.Interface, to netip.Addr, port uint16, text string) error {
	return In(guest, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		length := uint16(8 + len(text))
		packet := make([]byte, 48, 48+len(text))
		packet[0], packet[5], packet[6], packet[7] = 0x60, byte(length), unix.IPPROTO_UDP, 64
		copy(packet[8:], nic.IPv6.Guest.AsSlice())
		copy(packet[24:], to.AsSlice())
		copy(packet[40:], []byte{4000 >> 8, 4000 & 0xff, byte(port >> 8), byte(port), byte(length >> 8), byte(length)})
		packet = append(packet, text...)
		// The pseudo-header: the addresses, the length, the protocol.
		sum := uint32(length) + unix.IPPROTO_UDP
		for i := 8; i < len(packet); i += 2 {
			sum += uint32(packet[i]) << 8
			if i+1 < len(packet) {
				sum += uint32(packet[i+1])
			}
		}
		for sum>>16 != 0 {
			sum = sum&0xffff + sum>>16
		}
		packet[46], packet[47] = byte(^sum>>8), byte(^sum)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		mac, err := net.ParseMAC(nic.BridgeMAC())
		if err != nil {
			return err
		}
		address := unix.SockaddrLinklayer{Protocol: 0xdd86, Ifindex: link.Attrs().Index, Halen: 6} // IPv6, big-endian
		copy(address.Addr[:], mac)
		return unix.Sendto(fd, packet, 0, &address)
	})
}

// A router that the pod knows by a global address is found by the link-local one that its MAC stands for.
func TestFindRouters(t *testing.T) {
	pod, peer, _ := dualPod(t, true)
	var router netip.Addr
	run(t, peer, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		router = network.LinkLocal6(link.Attrs().HardwareAddr)
		return nil
	})
	find := func(gateway string) netip.Addr {
		t.Helper()
		plan := network.Plan{Interfaces: []network.Interface{{
			Name: "default", Binding: network.Bridge, PodLink: "eth0",
			IPv6: &network.IPv6{Guest: netip.MustParseAddr("fd42::5"), Gateway: netip.MustParseAddr(gateway)},
		}}}
		if err := FindRouters(t.Context(), pod, &plan); err != nil {
			t.Fatal(err)
		}
		return plan.Interfaces[0].IPv6.Router
	}
	if got := find("fd42::99"); got.IsValid() {
		t.Errorf("found %s behind an address that nobody has", got)
	}
	if got := find("fd42::1"); got != router {
		t.Errorf("found %s, want %s", got, router)
	}
}

// With the bridge binding the guest has the pod's address, and is a host of its network; the pod's bridge has an
// address for the guest alone.
func TestBridgeDualStack(t *testing.T) {
	pod, peer, guest := dualPod(t, true)
	links, err := Links(pod)
	if err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParsePrefix("fd42::5/64"); !slices.Contains(links[0].Addresses, want) {
		t.Errorf("addresses %v", links[0].Addresses)
	}
	if !slices.ContainsFunc(links[0].Routes, func(r network.Route) bool {
		return r.Destination == netip.MustParsePrefix("::/0") && r.Via == netip.MustParseAddr("fd42::1")
	}) {
		t.Errorf("no default route among %v", links[0].Routes)
	}
	nic := network.Interface{
		Name: "default", Binding: network.Bridge, PodLink: "eth0", BridgeLink: "k6t-eth0", Tap: "tap0",
		MAC: links[0].MAC, MTU: 1450, Gateway: netip.MustParsePrefix("10.42.1.1/24"),
		Guest: netip.MustParseAddr("10.42.1.5"),
		IPv6:  &network.IPv6{Guest: netip.MustParseAddr("fd42::5"), Bits: 64},
	}
	for range 2 {
		if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
			t.Fatal(err)
		}
	}
	attachGuest6(t, pod, guest, nic, netip.MustParseAddr("fd42::1"))
	serve(t, guest, 8080)
	serve(t, peer, 9090)
	serve(t, pod, 547)
	wantAnswer(t, "the network reaches the guest", peer, "[fd42::5]:8080", "fd42::1")
	wantAnswer(t, "the guest reaches the network", guest, "[fd42::1]:9090", "fd42::5")
	wantAnswer(t, "IPv4 still", peer, "10.42.1.5:8080", "10.42.1.1")

	if err := knock(t, guest, "fe80::a", nic); err != nil {
		t.Errorf("the guest does not reach the bridge's link-local address: %v", err)
	}
	err = knock(t, peer, "fe80::b", nic)
	var late net.Error
	if !errors.Is(err, unix.EHOSTUNREACH) && (!errors.As(err, &late) || !late.Timeout()) {
		t.Errorf("the network reaches the bridge of the pod: %v", err)
	}
}

// knock connects to the bridge's link-local address from one of a namespace's.
func knock(t *testing.T, ns *os.File, from string, nic network.Interface) error {
	t.Helper()
	addresses(t, ns, "eth0", from+"/64")
	return In(ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		zone := strconv.Itoa(link.Attrs().Index) // Go remembers names of links, but not of which namespace
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from), Zone: zone}, Timeout: 15 * time.Second}
		c, err := dialer.Dial("tcp6", net.JoinHostPort(nic.LinkLocal6().String()+"%"+zone, "547"))
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// Without an IPv6 address of the pod nothing of IPv6 is there.
func TestNoIPv6(t *testing.T) {
	needIPv6(t)
	pod, peer := newNetns(t), newNetns(t)
	wire(t, pod, "eth0", "10.42.1.5/24", peer, "eth0", "10.42.1.1/24")
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{masquerade()}}); err != nil {
		t.Fatal(err)
	}
	run(t, pod, func() error {
		off, err := os.ReadFile("/proc/sys/net/ipv6/conf/k6t-eth0/disable_ipv6")
		if err != nil || strings.TrimSpace(string(off)) != "1" {
			t.Errorf("disable_ipv6 of the bridge is %q, %v", off, err)
		}
		forward, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/forwarding")
		if err != nil || strings.TrimSpace(string(forward)) != "0" {
			t.Errorf("forwarding is %q, %v", forward, err)
		}
		return nil
	})
	conn, err := nftables.New(nftables.WithNetNSFd(int(pod.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil || len(tables) != 1 || tables[0].Family != nftables.TableFamilyIPv4 {
		t.Errorf("tables %+v, %v", tables, err)
	}
}

// A pod that has its default route by router advertisements keeps it as a router.
func TestForwardingAcceptsAdvertisements(t *testing.T) {
	pod, _, _ := dualPod(t, true)
	run(t, pod, func() error { return sysctl("ipv6/conf/eth0/accept_ra", "1") })
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{masquerade6(true)}}); err != nil {
		t.Fatal(err)
	}
	run(t, pod, func() error {
		got, err := os.ReadFile("/proc/sys/net/ipv6/conf/eth0/accept_ra")
		if err != nil || strings.TrimSpace(string(got)) != "2" {
			t.Errorf("accept_ra is %q, %v", got, err)
		}
		return nil
	})
}
