package dhcp

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/server6"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// needIPv6 skips a test on a machine without.
func needIPv6(t *testing.T) {
	t.Helper()
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err != nil || string(off) != "0\n" {
		t.Skipf("this machine has no IPv6: %q, %v", off, err)
	}
}

// address6 gives a link of the thread's namespace an address that is good at once, and returns its zone.
func address6(t *testing.T, name, cidr string) string {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	address, err := netlink.ParseAddr(cidr)
	if err != nil {
		t.Fatal(err)
	}
	address.Flags = unix.IFA_F_NODAD
	if err := netlink.AddrAdd(link, address); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(link.Attrs().Index)
}

// exchange6 sends m until its answer comes, or for the given number of times.
func exchange6(t *testing.T, conn *net.UDPConn, zone string, m *dhcpv6.Message, times int) *dhcpv6.Message {
	t.Helper()
	to := &net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers, Port: dhcpv6.DefaultServerPort, Zone: zone}
	buf := make([]byte, maxPacket)
	for range times {
		if _, err := conn.WriteToUDP(m.ToBytes(), to); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for {
			n, _, err := conn.ReadFromUDP(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			reply, err := dhcpv6.MessageFromBytes(buf[:n])
			if err != nil {
				t.Fatal(err)
			}
			if reply.TransactionID == m.TransactionID {
				return reply
			}
		}
	}
	return nil
}

func TestServer6(t *testing.T) {
	needIPv6(t)
	defer goleak.VerifyNone(t)
	inNamespaces(t, func(t *testing.T, guest netns.NsHandle) {
		nic := masquerade6()
		address6(t, nic.BridgeLink, nic.LinkLocal6().String()+"/64")
		s, err := Listen6(config6(t), slog.New(slog.DiscardHandler))
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
		zone := address6(t, "eth0", "fe80::2/64")
		conn, err := server6.NewIPv6UDPConn("eth0", &net.UDPAddr{IP: net.ParseIP("::"), Port: dhcpv6.DefaultClientPort})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		solicit, err := dhcpv6.NewSolicit(guestMAC)
		if err != nil {
			t.Fatal(err)
		}
		advertise := exchange6(t, conn, zone, solicit, 50)
		if advertise == nil {
			t.Fatal("no answer")
		}
		request, err := dhcpv6.NewRequestFromAdvertise(advertise)
		if err != nil {
			t.Fatal(err)
		}
		reply := exchange6(t, conn, zone, request, 50)
		if reply == nil || reply.Options.OneIANA().Options.OneAddress().IPv6Addr.String() != "fd10:0:2::2" {
			t.Errorf("answered %v", reply)
		}
	})
}

// A guest that sends without end is answered some times a second.
func TestServer6Limit(t *testing.T) {
	now := time.Unix(1, 0)
	s := &Server6{now: func() time.Time { return now }}
	count := func() (n int) {
		for range 1000 {
			if s.mayReply() {
				n++
			}
		}
		return n
	}
	if first, again := count(), count(); first != maxReplies6 || again != 0 {
		t.Errorf("%d and %d answers in a second", first, again)
	}
	now = now.Add(time.Second)
	if next := count(); next != maxReplies6 {
		t.Errorf("%d answers in the next second", next)
	}
}

func TestListen6OnNoLink(t *testing.T) {
	c := config6(t)
	c.Link = "no-such-link"
	if _, err := Listen6(c, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("listened on a link that does not exist")
	}
	if c.answers(netip.Addr{}) {
		t.Error("nobody is answered")
	}
}
