package router

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/ndp"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func masquerade() network.Interface {
	nic := network.Interface{
		Name: "default", Binding: network.Masquerade, PodLink: "eth0", BridgeLink: "k6t-eth0", Tap: "tap0",
		MAC: "02:00:00:00:00:07", MTU: 1450,
	}
	nic.IPv6 = &network.IPv6{
		Guest: netip.MustParseAddr("fd10:0:2::2"), Bits: 120, Gateway: netip.MustParseAddr("fd10:0:2::1"),
		Router: nic.LinkLocal6(), DNS: []netip.Addr{netip.MustParseAddr("fd96::a")},
		Search: []string{"svc.cluster.local"},
	}
	return nic
}

func frame(t *testing.T, nic network.Interface) []byte {
	t.Helper()
	f, err := Frame(nic)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFrame(t *testing.T) {
	f := frame(t, masquerade())
	ip := f[ethernetHeader:]
	if source := netip.AddrFrom16([16]byte(ip[8:24])); source != masquerade().LinkLocal6() {
		t.Errorf("from %s", source)
	}
	if length := int(ip[4])<<8 | int(ip[5]); length != len(ip)-ipHeader || ip[7] != hopLimit {
		t.Errorf("length %d, hop limit %d", length, ip[7])
	}
	got, err := ndp.ParseMessage(ip[ipHeader:])
	if err != nil {
		t.Fatal(err)
	}
	mac, err := net.ParseMAC(masquerade().BridgeMAC())
	if err != nil {
		t.Fatal(err)
	}
	want := &ndp.RouterAdvertisement{
		CurrentHopLimit: 64, ManagedConfiguration: true, OtherConfiguration: true, RouterLifetime: 65535 * time.Second,
		Options: []ndp.Option{
			&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac},
			ndp.NewMTU(1450),
			&ndp.PrefixInformation{
				PrefixLength: 120, OnLink: true, Prefix: netip.MustParseAddr("fd10:0:2::"), ValidLifetime: ndp.Infinity,
				PreferredLifetime: ndp.Infinity,
			},
			&ndp.RecursiveDNSServer{
				Lifetime: 65535 * time.Second, Servers: []netip.Addr{netip.MustParseAddr("fd96::a")},
			},
			&ndp.DNSSearchList{Lifetime: 65535 * time.Second, DomainNames: []string{"svc.cluster.local"}},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// With the bridge binding the router is the pod's; a network without one has no default route to tell of.
func TestFrameOfBridge(t *testing.T) {
	nic := masquerade()
	nic.Binding = network.Bridge
	nic.IPv6 = &network.IPv6{Guest: netip.MustParseAddr("fd42::5"), Bits: 128, Router: netip.MustParseAddr("fe80::1")}
	for _, routed := range []bool{true, false} {
		if !routed {
			nic.IPv6.Router = netip.Addr{}
		}
		ip := frame(t, nic)[ethernetHeader:]
		message, err := ndp.ParseMessage(ip[ipHeader:])
		if err != nil {
			t.Fatal(err)
		}
		got, ok := message.(*ndp.RouterAdvertisement)
		if !ok || (got.RouterLifetime > 0) != routed {
			t.Errorf("%+v", message)
		}
		source := netip.AddrFrom16([16]byte(ip[8:24]))
		if (source == netip.MustParseAddr("fe80::1")) != routed || !routed && source != nic.LinkLocal6() {
			t.Errorf("from %s", source)
		}
		for _, o := range got.Options {
			switch o.(type) {
			case *ndp.PrefixInformation:
				t.Error("an address that is alone has no prefix on the link")
			case *ndp.LinkLayerAddress:
				if routed {
					t.Error("the router's MAC is not the pod's to tell")
				}
			}
		}
	}
}

func TestNoFrame(t *testing.T) {
	nic := masquerade()
	nic.IPv6 = nil
	if f := frame(t, nic); f != nil {
		t.Errorf("%x", f)
	}
}

// namespace returns a network namespace of its own.
func namespace(t *testing.T) *os.File {
	t.Helper()
	host, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	var ns *os.File
	err = apply.In(host, func() error { // on a thread that ends
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatalf("make a network namespace (this test needs root): %v", err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func run(t *testing.T, ns *os.File, f func() error) {
	t.Helper()
	if err := apply.In(ns, f); err != nil {
		t.Fatal(err)
	}
}

// needIPv6 skips a test on a machine without.
func needIPv6(t *testing.T) {
	t.Helper()
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err != nil || string(off) != "0\n" {
		t.Skipf("this machine has no IPv6: %q, %v", off, err)
	}
}

// wired returns the namespaces of a pod and its guest: a veth pair stands for the tap, a port of the pod's bridge.
func wired(t *testing.T) (pod, guest *os.File) {
	t.Helper()
	needIPv6(t)
	pod, guest = namespace(t), namespace(t)
	run(t, pod, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "tap0"
		tap := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(guest.Fd())}
		if err := netlink.LinkAdd(tap); err != nil {
			return err
		}
		attrs = netlink.NewLinkAttrs()
		attrs.Name = "k6t-eth0"
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		return netlink.LinkSetMaster(tap, bridge)
	})
	up := func(name string) func() error {
		return func() error {
			// The tap is a port of a bridge, which speaks no IPv6 itself.
			if name == "tap0" {
				if err := os.WriteFile("/proc/sys/net/ipv6/conf/tap0/disable_ipv6", []byte("1"), 0); err != nil {
					return err
				}
			}
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(link)
		}
	}
	run(t, pod, up("k6t-eth0"))
	run(t, pod, up("tap0"))
	run(t, guest, up("eth0"))
	return pod, guest
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(what)
		}
	}
}

func routes(t *testing.T, ns *os.File) (out []netlink.Route) {
	t.Helper()
	run(t, ns, func() (err error) {
		out, err = netlink.RouteList(nil, netlink.FAMILY_V6)
		return err
	})
	return out
}

// A guest whose kernel asks, as Linux does when its link comes up, learns its default route, its prefix and its MTU,
// and makes itself no address.
func TestServer(t *testing.T) {
	pod, guest := wired(t)
	nic := masquerade()
	s, err := Listen(pod, nic.Tap, frame(t, nic), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	until(t, "the guest has no default route", func() bool {
		return slices.ContainsFunc(routes(t, guest), func(r netlink.Route) bool {
			return (r.Dst == nil || r.Dst.String() == "::/0") && r.Gw.String() == nic.LinkLocal6().String()
		})
	})
	if !slices.ContainsFunc(routes(t, guest), func(r netlink.Route) bool {
		return r.Dst != nil && r.Dst.String() == "fd10:0:2::/120" && r.Gw == nil
	}) {
		t.Errorf("the guest does not reach its prefix: %v", routes(t, guest))
	}
	run(t, guest, func() error {
		mtu, err := os.ReadFile("/proc/sys/net/ipv6/conf/eth0/mtu")
		if err != nil || string(mtu) != "1450\n" {
			t.Errorf("MTU %q, %v", mtu, err)
		}
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
		for _, a := range addrs {
			if a.Scope == int(netlink.SCOPE_UNIVERSE) {
				t.Errorf("the guest has made itself the address %s", a)
			}
		}
		return err
	})
}

// A guest that asks without end is answered once a second; another frame than a solicitation is no question.
func TestServerAnswersInMeasure(t *testing.T) {
	pod, guest := wired(t)
	nic := masquerade()
	var fd int
	run(t, guest, func() (err error) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0); err != nil {
			return err // it would ask, too
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0xdd86, Ifindex: link.Attrs().Index})
	})
	socket := os.NewFile(uintptr(fd), "the guest's link")
	defer socket.Close()
	s, err := Listen(pod, nic.Tap, frame(t, nic), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	// answers counts advertisements until the deadline, while what is given is sent.
	answers := func(limit time.Duration, send []byte) (n int) {
		end := time.Now().Add(limit)
		buf := make([]byte, 2048)
		for time.Now().Before(end) {
			if _, err := socket.Write(send); err != nil {
				t.Fatal(err)
			}
			if err := socket.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			got, err := socket.Read(buf)
			if err == nil && got > ethernetHeader+ipHeader && buf[ethernetHeader+ipHeader] == 134 {
				n++
			}
		}
		return n
	}
	question := question()
	n, began := 0, time.Now()
	for n < 2 && time.Since(began) < time.Minute { // the server may be late on a busy machine
		n += answers(3500*time.Millisecond, question)
	}
	if took := time.Since(began); n < 2 || float64(n) > 2+took.Seconds()/pause.Seconds() {
		t.Errorf("%d answers in %s", n, took)
	}
	for name, at := range map[string]int{"far away": ethernetHeader + 7, "another message": ethernetHeader + ipHeader} {
		other := slices.Clone(question)
		other[at]--
		n := 1
		for i := 0; i < 10 && n > 0; i++ { // what was asked before is answered first, late on a busy machine
			n = answers(1500*time.Millisecond, other)
		}
		if n > 0 {
			t.Errorf("%s: %d answers", name, n)
		}
	}
}

// question is a router solicitation from no address, whose checksum nobody looks at.
func question() []byte {
	f := make([]byte, ethernetHeader+ipHeader+8)
	copy(f, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 2})
	copy(f[6:], net.HardwareAddr{2, 0, 0, 0, 0, 7})
	f[12], f[13] = 0x86, 0xdd
	ip := f[ethernetHeader:]
	ip[0], ip[5], ip[6], ip[7], ip[ipHeader] = 0x60, 8, unix.IPPROTO_ICMPV6, hopLimit, solicitation
	copy(ip[24:], netip.MustParseAddr("ff02::2").AsSlice())
	return f
}

func TestListenOnNoLink(t *testing.T) {
	if _, err := Listen(namespace(t), "no-such-tap", nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("advertises on a link that does not exist")
	}
}
