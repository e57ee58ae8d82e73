package apply

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// A second network is the guest's and not the pod's: the guest is on it with its own MAC, the pod speaks for none of
// its addresses there, and forwards nothing from it.
func TestSecondNetwork(t *testing.T) {
	pod, peer, lan, guest := newNetns(t), newNetns(t), newNetns(t), newNetns(t)
	wire(t, pod, "eth0", "10.42.1.5/24", peer, "eth0", "10.42.1.1/24")
	wire(t, pod, "podb1f51a511f1", "", lan, "eth0", "198.18.1.2/24")
	run(t, pod, defaultRoute("10.42.1.1"))
	nic := network.Interface{
		Name: "red", Binding: network.Bridge, PodLink: "podb1f51a511f1", BridgeLink: "k6t-b1f51a511f1",
		Tap: "tapb1f51a511f1",
		MAC: "02:00:00:00:00:09", MTU: 1400,
	}
	plan := network.Plan{Interfaces: []network.Interface{masquerade(), nic}}
	for range 2 {
		if err := Apply(pod, plan); err != nil {
			t.Fatal(err)
		}
	}
	configured := nic // by the guest itself
	configured.Guest, configured.Bits = netip.MustParseAddr("198.18.1.1"), 24
	configured.Gateway = netip.MustParsePrefix("198.18.1.2/24")
	attachGuest(t, pod, guest, configured)
	serve(t, guest, 8080)
	serve(t, lan, 9090)
	serve(t, pod, 9091)
	wantAnswer(t, "the network reaches the guest", lan, "198.18.1.1:8080", "198.18.1.2")
	wantAnswer(t, "the guest reaches the network", guest, "198.18.1.2:9090", "198.18.1.1")

	var bridge net.HardwareAddr
	run(t, pod, func() error {
		link, err := netlink.LinkByName(nic.BridgeLink)
		if err != nil {
			return err
		}
		bridge = link.Attrs().HardwareAddr
		if addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL); err != nil || len(addrs) > 0 {
			t.Errorf("the bridge has addresses %v, %v", addrs, err)
		}
		quiet, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + nic.PodLink + "/disable_ipv6")
		if err == nil && strings.TrimSpace(string(quiet)) != "1" {
			t.Errorf("%s speaks IPv6 for itself", nic.PodLink)
		}
		return nil
	})

	// From the second network to the pod's first, by way of the pod.
	var sniff net.PacketConn
	run(t, peer, func() (err error) {
		sniff, err = net.ListenPacket("udp4", ":7000")
		return err
	})
	defer sniff.Close()
	stranger := configured
	stranger.Guest = netip.MustParseAddr("198.18.1.2")
	if err := sendFrame(lan, stranger, bridge, netip.MustParseAddr("10.42.1.1"), 7000, "lan"); err != nil {
		t.Fatal(err)
	}
	run(t, pod, func() error {
		c, err := net.Dial("udp4", "10.42.1.1:7000")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("pod"))
		return err
	})
	if err := sniff.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, _, err := sniff.ReadFrom(buf); err != nil || string(buf[:n]) != "pod" {
		t.Errorf("first datagram that got out: %q, %v; want the pod's own", buf[:n], err)
	}

	// The pod's own addresses are not on the second network.
	run(t, lan, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		_, subnet, err := net.ParseCIDR("10.42.1.0/24")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: subnet, Scope: netlink.SCOPE_LINK})
	})
	if got, err := ask(lan, "10.42.1.5:9091"); err == nil {
		t.Errorf("the pod answers for 10.42.1.5 on the second network: %q", got)
	}
}

// A tap that a CNI plugin has made is found, and nothing but set up.
func TestMadeTap(t *testing.T) {
	pod := newNetns(t)
	run(t, pod, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "podred"
		return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP})
	})
	links, err := Links(pod)
	if err != nil || len(links) != 1 || !links[0].Tap || links[0].Name != "podred" {
		t.Fatalf("links %+v, %v", links, err)
	}
	plan := network.Plan{
		Interfaces: []network.Interface{
			{Name: "red", Binding: network.Tap, PodLink: "podred", Tap: "podred", MAC: links[0].MAC},
		},
	}
	for range 2 {
		if err := Apply(pod, plan); err != nil {
			t.Fatal(err)
		}
	}
	run(t, pod, func() error {
		all, err := netlink.LinkList()
		for _, link := range all {
			if link.Attrs().Flags&net.FlagLoopback == 0 &&
				(link.Attrs().Name != "podred" || link.Attrs().Flags&net.FlagUp == 0) {
				t.Errorf("there is %+v", link)
			}
		}
		return err
	})
}

func TestTapWithQueues(t *testing.T) {
	pod := newNetns(t)
	nic := masquerade()
	nic.Queues = 2
	plan := network.Plan{Interfaces: []network.Interface{nic}}
	for range 2 { // again changes nothing
		if err := Apply(pod, plan); err != nil {
			t.Fatal(err)
		}
	}
	run(t, pod, func() error {
		link, err := netlink.LinkByName(nic.Tap)
		if err != nil {
			return err
		}
		if tap, ok := link.(*netlink.Tuntap); !ok || tap.Flags&netlink.TUNTAP_MULTI_QUEUE == 0 {
			return fmt.Errorf("tap is %+v", link)
		}
		return nil
	})
}
