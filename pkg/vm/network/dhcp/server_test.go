package dhcp

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
)

// inNamespaces runs the test on a thread of its own with two network namespaces joined by a veth
// pair: the pod's, with the bridge link's name and address, and the guest's.
func inNamespaces(t *testing.T, test func(t *testing.T, guest netns.NsHandle)) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and the namespaces with it
	pod, err := netns.New()
	if err != nil {
		t.Fatalf("make a network namespace (this test needs root): %v", err)
	}
	t.Cleanup(func() { _ = pod.Close() })
	guest, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guest.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	up := func(name string, mac net.HardwareAddr) netlink.Link {
		t.Helper()
		link, err := netlink.LinkByName(name)
		must(err)
		if mac != nil {
			must(netlink.LinkSetHardwareAddr(link, mac))
		}
		must(netlink.LinkSetUp(link))
		return link
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "k6t-eth0", PeerNamespace: netlink.NsFd(int(pod))}
	must(netlink.LinkAdd(veth))
	up("eth0", guestMAC)
	must(netns.Set(pod))
	link := up("k6t-eth0", nil)
	address, err := netlink.ParseAddr("10.0.2.1/24")
	must(err)
	must(netlink.AddrAdd(link, address))
	test(t, guest)
}

func TestServer(t *testing.T) {
	defer goleak.VerifyNone(t)
	inNamespaces(t, func(t *testing.T, guest netns.NsHandle) {
		c := config(t, masquerade())
		s, err := Listen(c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err := netns.Set(guest); err != nil {
			t.Fatal(err)
		}
		client := listenRaw(t, "eth0")
		discover, err := dhcpv4.NewDiscovery(guestMAC)
		if err != nil {
			t.Fatal(err)
		}
		offer := client.exchange(t, discover)
		request, err := dhcpv4.NewRequestFromOffer(offer, dhcpv4.WithTransactionID(dhcpv4.TransactionID{9, 9, 9, 9}))
		if err != nil {
			t.Fatal(err)
		}
		ack := client.exchange(t, request)
		if ack.MessageType() != dhcpv4.MessageTypeAck || ack.YourIPAddr.String() != "10.0.2.2" {
			t.Error(ack.Summary())
		}
		// One of another MAC gets no answer; the next one's comes first.
		stranger, err := dhcpv4.NewDiscovery(strangerMAC)
		if err != nil {
			t.Fatal(err)
		}
		client.send(t, stranger)
		again, err := dhcpv4.NewDiscovery(guestMAC)
		if err != nil {
			t.Fatal(err)
		}
		client.exchange(t, again)
	})
}

func TestListenOnNoLink(t *testing.T) {
	c := config(t, masquerade())
	c.Link = "no-such-link"
	if _, err := Listen(c, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("listened on a link that does not exist")
	}
}

// strangerMAC is not the guest's.
var strangerMAC = net.HardwareAddr{2, 9, 9, 9, 9, 9}

// client is a guest without an address: it hears broadcasts.
type client struct{ conn *net.UDPConn }

func listenRaw(t *testing.T, link string) *client {
	t.Helper()
	conn, err := server4.NewIPv4UDPConn(link, &net.UDPAddr{Port: dhcpv4.ClientPort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn}
}

func (c *client) send(t *testing.T, m *dhcpv4.DHCPv4) {
	t.Helper()
	if _, err := c.conn.WriteToUDP(m.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort}); err != nil {
		t.Fatal(err)
	}
}

// exchange sends m until its answer comes, as clients do: a link that has just come up loses packets.
// Answers to earlier ones are passed over, but none may be for the stranger.
func (c *client) exchange(t *testing.T, m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	t.Helper()
	buf := make([]byte, maxPacket)
	for range 50 {
		c.send(t, m)
		if err := c.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for {
			n, _, err := c.conn.ReadFromUDP(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			reply, err := dhcpv4.FromBytes(buf[:n])
			if err != nil {
				t.Fatal(err)
			}
			if reply.ClientHWAddr.String() == strangerMAC.String() {
				t.Fatal("a stranger was answered")
			}
			if reply.TransactionID == m.TransactionID {
				return reply
			}
		}
	}
	t.Fatal("no answer")
	return nil
}
