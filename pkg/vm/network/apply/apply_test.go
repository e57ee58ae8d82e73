package apply

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Println("these tests make network namespaces: run them as root")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// newNetns makes a network namespace with its loopback up. It ends with the test.
func newNetns(t *testing.T) *os.File {
	t.Helper()
	type result struct {
		f   *os.File
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		var r result
		defer func() { done <- r }()
		if r.err = unix.Unshare(unix.CLONE_NEWNET); r.err != nil {
			return
		}
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			r.err = err
			return
		}
		r.f, r.err = os.Open("/proc/thread-self/ns/net")
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("make network namespace: %v", r.err)
	}
	t.Cleanup(func() { r.f.Close() })
	return r.f
}

func run(t *testing.T, ns *os.File, f func() error) {
	t.Helper()
	if err := In(ns, f); err != nil {
		t.Fatal(err)
	}
}

// wire connects two namespaces by a veth pair; the ends are up and have the addresses given.
func wire(t *testing.T, a *os.File, nameA, cidrA string, b *os.File, nameB, cidrB string) {
	t.Helper()
	run(t, a, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = nameA, 1450
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: nameB, PeerMTU: 1450, PeerNamespace: netlink.NsFd(b.Fd()),
		})
	})
	end := func(name, cidr string) func() error {
		return func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if cidr != "" {
				addr, err := netlink.ParseAddr(cidr)
				if err != nil {
					return err
				}
				if err := netlink.AddrAdd(link, addr); err != nil {
					return err
				}
			}
			return netlink.LinkSetUp(link)
		}
	}
	run(t, a, end(nameA, cidrA))
	run(t, b, end(nameB, cidrB))
}

func defaultRoute(via string) func() error {
	return func() error {
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)})
	}
}

// attachGuest puts a namespace that stands for the guest on the plan's bridge, beside the tap.
func attachGuest(t *testing.T, pod, guest *os.File, nic network.Interface) {
	t.Helper()
	wire(t, pod, "guest", "", guest, "eth0", netip.PrefixFrom(nic.Guest, nic.Gateway.Bits()).String())
	run(t, pod, func() error {
		bridge, err := netlink.LinkByName(nic.BridgeLink)
		if err != nil {
			return err
		}
		port, err := netlink.LinkByName("guest")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(port, bridge)
	})
	run(t, guest, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		mac, err := net.ParseMAC(nic.MAC)
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(link, mac)
	})
	run(t, guest, defaultRoute(nic.Gateway.Addr().String()))
}

// serve answers each connection in ns with the address it sees as its peer.
func serve(t *testing.T, ns *os.File, port int) {
	t.Helper()
	var l net.Listener
	run(t, ns, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, host)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

// ask connects from ns and returns what serve said.
func ask(ns *os.File, address string) (string, error) { return askFrom(ns, netip.Addr{}, address) }

// askFrom is ask from an address of the namespace's.
func askFrom(ns *os.File, from netip.Addr, address string) (string, error) {
	var got []byte
	err := In(ns, func() error {
		// The kernel may take a second to see a carrier, and TCP as long to try again.
		d := net.Dialer{Timeout: 10 * time.Second}
		if from.IsValid() {
			d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
		}
		c, err := d.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		got, err = io.ReadAll(c)
		return err
	})
	return string(got), err
}

func wantAnswer(t *testing.T, what string, ns *os.File, address, want string) {
	t.Helper()
	if got, err := ask(ns, address); err != nil || got != want {
		t.Errorf("%s: %s said %q, %v; want %q", what, address, got, err, want)
	}
}

func masquerade() network.Interface {
	return network.Interface{
		Name: "default", Binding: network.Masquerade, PodLink: "eth0", BridgeLink: "k6t-eth0", Tap: "tap0",
		MAC: "02:00:00:00:00:07", MTU: 1450, PodIPs: []netip.Addr{netip.MustParseAddr("10.42.1.5")},
		Gateway: netip.MustParsePrefix("10.0.2.1/24"), Guest: netip.MustParseAddr("10.0.2.2"),
	}
}

func TestMasqueradeAllPorts(t *testing.T) {
	pod, peer, guest := newNetns(t), newNetns(t), newNetns(t)
	wire(t, pod, "eth0", "10.42.1.5/24", peer, "eth0", "10.42.1.1/24")
	run(t, pod, defaultRoute("10.42.1.1"))
	plan := network.Plan{Interfaces: []network.Interface{masquerade()}}
	for range 2 { // The second time changes nothing and must not fail.
		if err := Apply(pod, plan); err != nil {
			t.Fatal(err)
		}
	}
	attachGuest(t, pod, guest, plan.Interfaces[0])
	serve(t, guest, 8080)
	serve(t, peer, 9090)

	wantAnswer(t, "the network reaches the guest", peer, "10.42.1.5:8080", "10.42.1.1")
	wantAnswer(t, "the pod reaches the guest", pod, "127.0.0.1:8080", "10.0.2.1")
	wantAnswer(t, "the guest reaches the network", guest, "10.42.1.1:9090", "10.42.1.5")

	if err := Apply(pod, plan); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, "after applying again", peer, "10.42.1.5:8080", "10.42.1.1")
}

func TestMasqueradeListedPorts(t *testing.T) {
	pod, peer, guest := newNetns(t), newNetns(t), newNetns(t)
	wire(t, pod, "eth0", "10.42.1.5/24", peer, "eth0", "10.42.1.1/24")
	nic := masquerade()
	nic.Ports = []network.Port{{Protocol: "TCP", Port: 8080}, {Protocol: "UDP", Port: 8081}}
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	attachGuest(t, pod, guest, nic)
	serve(t, guest, 8080)
	serve(t, guest, 8081)
	wantAnswer(t, "listed", peer, "10.42.1.5:8080", "10.42.1.1")
	wantAnswer(t, "listed, from the pod", pod, "127.0.0.1:8080", "10.0.2.1")
	if got, err := ask(peer, "10.42.1.5:8081"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port that is not listed for TCP answered %q, %v; want connection refused", got, err)
	}
}

func TestGuestCannotSpoof(t *testing.T) {
	pod, peer, guest := newNetns(t), newNetns(t), newNetns(t)
	wire(t, pod, "eth0", "10.42.1.5/24", peer, "eth0", "10.42.1.1/24")
	plan := network.Plan{Interfaces: []network.Interface{masquerade()}}
	if err := Apply(pod, plan); err != nil {
		t.Fatal(err)
	}
	attachGuest(t, pod, guest, plan.Interfaces[0])
	run(t, guest, func() error {
		link, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("10.42.1.77/32")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, addr)
	})
	var sniff net.PacketConn
	run(t, peer, func() (err error) {
		sniff, err = net.ListenPacket("udp4", ":7000")
		return err
	})
	defer sniff.Close()
	send := func(from string) {
		run(t, guest, func() error {
			c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)},
				&net.UDPAddr{IP: net.ParseIP("10.42.1.1"), Port: 7000})
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte(from))
			return err
		})
	}
	serve(t, peer, 9090)
	wantAnswer(t, "the network is up", guest, "10.42.1.1:9090", "10.42.1.5")
	send("10.42.1.77")
	send("10.0.2.2")
	if err := sniff.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, _, err := sniff.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "10.0.2.2" {
		t.Errorf("first datagram that got out: %q, %v; want the guest's own", buf[:n], err)
	}
}

// sendFrame puts an UDP datagram on the guest's link as a hostile guest can, whatever its own kernel thinks.
func sendFrame(guest *os.File, nic network.Interface, gateway net.HardwareAddr, to netip.Addr, port uint16, text string,
) error {
	return In(guest, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		packet := make([]byte, 28, 28+len(text))
		packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(packet[2:], uint16(cap(packet)))
		copy(packet[12:], nic.Guest.AsSlice())
		copy(packet[16:], to.AsSlice())
		var sum uint32
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(packet[i:]))
		}
		binary.BigEndian.PutUint16(packet[10:], ^uint16(sum+sum>>16))
		binary.BigEndian.PutUint16(packet[20:], 4000)
		binary.BigEndian.PutUint16(packet[22:], port)
		binary.BigEndian.PutUint16(packet[24:], uint16(8+len(text)))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		address := unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: link.Attrs().Index, Halen: 6} // IPv4, big-endian
		copy(address.Addr[:], gateway)
		return unix.Sendto(fd, append(packet, text...), 0, &address)
	})
}

// What listens on the pod's loopback is not the guest's to speak to, though 127.0.0.1 leads to the guest.
func TestGuestCannotReachLoopback(t *testing.T) {
	pod, peer, guest := newNetns(t), newNetns(t), newNetns(t)
	wire(t, pod, "eth0", "10.42.1.5/24", peer, "eth0", "10.42.1.1/24")
	nic := masquerade()
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	attachGuest(t, pod, guest, nic)
	serve(t, guest, 8080)
	wantAnswer(t, "the pod reaches the guest", pod, "127.0.0.1:8080", "10.0.2.1")
	var private net.PacketConn
	var gateway net.HardwareAddr
	run(t, pod, func() (err error) {
		bridge, err := netlink.LinkByName(nic.BridgeLink)
		if err != nil {
			return err
		}
		gateway = bridge.Attrs().HardwareAddr
		private, err = net.ListenPacket("udp4", ":7000")
		return err
	})
	defer private.Close()
	for _, to := range []string{"127.0.0.1", "127.8.8.8", "10.0.2.1"} {
		if err := sendFrame(guest, nic, gateway, netip.MustParseAddr(to), 7000, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := private.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, _, err := private.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "10.0.2.1" {
		t.Errorf("the first datagram that came in was to %q, %v; want the one to the gateway", buf[:n], err)
	}
}

func TestBridge(t *testing.T) {
	pod, peer, guest := newNetns(t), newNetns(t), newNetns(t)
	wire(t, pod, "eth0", "10.42.1.5/24", peer, "eth0", "10.42.1.1/24")
	run(t, pod, defaultRoute("10.42.1.1"))
	links, err := Links(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := []network.Link{{
		Name: "eth0", MAC: links[0].MAC, MTU: 1450,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.42.1.5/24")},
		Routes: []network.Route{
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.42.1.1")},
			{Destination: netip.MustParsePrefix("10.42.1.0/24")},
		},
	}}
	compare := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	prefixes := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, links, compare, prefixes); diff != "" {
		t.Fatalf("links (-want +got):\n%s", diff)
	}
	nic := network.Interface{
		Name: "default", Binding: network.Bridge, PodLink: "eth0", BridgeLink: "k6t-eth0", Tap: "tap0",
		MAC: links[0].MAC, MTU: 1450, Gateway: netip.MustParsePrefix("10.42.1.1/24"),
		Guest: netip.MustParseAddr("10.42.1.5"),
	}
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	attachGuest(t, pod, guest, nic)
	serve(t, guest, 8080)
	serve(t, peer, 9090)
	wantAnswer(t, "the network reaches the guest", peer, "10.42.1.5:8080", "10.42.1.1")
	wantAnswer(t, "the guest reaches the network", guest, "10.42.1.1:9090", "10.42.1.5")
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, "after applying again", peer, "10.42.1.5:8080", "10.42.1.1")
}

func TestTapBelongsToLauncher(t *testing.T) {
	pod := newNetns(t)
	nic := masquerade()
	if err := Apply(pod, network.Plan{Interfaces: []network.Interface{nic}}); err != nil {
		t.Fatal(err)
	}
	run(t, pod, func() error {
		link, err := netlink.LinkByName(nic.Tap)
		if err != nil {
			return err
		}
		tap, ok := link.(*netlink.Tuntap)
		if !ok {
			return fmt.Errorf("%s is a %T", nic.Tap, link)
		}
		if tap.Owner != 107 || tap.Group != 107 || tap.NonPersist || tap.Attrs().MTU != 1450 {
			return fmt.Errorf("tap is %+v", tap)
		}
		forward, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
		if err != nil || strings.TrimSpace(string(forward)) != "1" {
			return fmt.Errorf("ip_forward is %q, %v", forward, err)
		}
		return nil
	})
	host, err := os.ReadFile("/proc/sys/net/ipv4/conf/k6t-eth0/route_localnet")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the test's own namespace got the bridge: %q, %v", host, err)
	}
}
