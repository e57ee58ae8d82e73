package dhcp

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

var guestMAC = net.HardwareAddr{2, 0, 0, 0x11, 0x22, 0x33}

func masquerade() network.Interface {
	return network.Interface{
		Name: "default", Binding: network.Masquerade, BridgeLink: "k6t-eth0", MAC: guestMAC.String(), MTU: 1450,
		Gateway: netip.MustParsePrefix("10.0.2.1/24"), Guest: netip.MustParseAddr("10.0.2.2"), Hostname: "demo",
	}
}

var resolv = Resolv{
	Nameservers: []netip.Addr{
		netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a"),
	},
	Search: []string{"ns.svc.cluster.local", "cluster.local"},
}

func config(t *testing.T, nic network.Interface) Config {
	t.Helper()
	c, ok, err := NewConfig(nic, resolv)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return c
}

// ask sends one message to the pure part.
func ask(t *testing.T, c Config, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	req, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(guestMAC), dhcpv4.WithMessageType(kind)},
		more...)...)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := c.Reply(req)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestOffer(t *testing.T) {
	reply := ask(t, config(t, masquerade()), dhcpv4.MessageTypeDiscover,
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte("me"))))
	if reply.MessageType() != dhcpv4.MessageTypeOffer || reply.YourIPAddr.String() != "10.0.2.2" {
		t.Fatal(reply.Summary())
	}
	got := reply.Summary()
	for _, want := range []string{
		"Server Identifier: 10.0.2.1", "Subnet Mask: ffffff00", "Router: 10.0.2.1", "Domain Name Server: 10.96.0.10\n",
		"Domain Name: ns.svc.cluster.local", "cluster.local", "Host Name: demo", "Client identifier",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if mtu := reply.GetOneOption(dhcpv4.OptionInterfaceMTU); !slices.Equal(mtu, []byte{0x05, 0xaa}) {
		t.Errorf("MTU % x", mtu)
	}
	if lease := reply.GetOneOption(dhcpv4.OptionIPAddressLeaseTime); !slices.Equal(lease,
		[]byte{0xff, 0xff, 0xff, 0xff}) {
		t.Errorf("lease % x", lease)
	}
	if reply.GetOneOption(dhcpv4.OptionClasslessStaticRoute) != nil {
		t.Error("there are no routes to tell")
	}
}

func TestRequest(t *testing.T) {
	c := config(t, masquerade())
	wants := func(ip string) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(ip)))
	}
	if r := ask(t, c, dhcpv4.MessageTypeRequest, wants("10.0.2.2")); r.MessageType() != dhcpv4.MessageTypeAck ||
		r.YourIPAddr.String() != "10.0.2.2" {
		t.Error(r.Summary())
	}
	// A renewal has its address elsewhere.
	if r := ask(t, c, dhcpv4.MessageTypeRequest,
		dhcpv4.WithClientIP(net.ParseIP("10.0.2.2"))); r.MessageType() != dhcpv4.MessageTypeAck {
		t.Error(r.Summary())
	}
	if r := ask(t, c, dhcpv4.MessageTypeRequest, wants("192.168.0.7")); r.MessageType() != dhcpv4.MessageTypeNak ||
		!r.YourIPAddr.IsUnspecified() {
		t.Error(r.Summary())
	}
	if r := ask(t, c, dhcpv4.MessageTypeInform); r.MessageType() != dhcpv4.MessageTypeAck ||
		!r.YourIPAddr.IsUnspecified() {
		t.Error(r.Summary())
	}
}

func TestSilence(t *testing.T) {
	c := config(t, masquerade())
	for name, r := range map[string]*dhcpv4.DHCPv4{
		"another client": ask(t, c, dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 9})),
		"another server": ask(t, c, dhcpv4.MessageTypeRequest,
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP("10.0.2.9")))),
		"release": ask(t, c, dhcpv4.MessageTypeRelease),
		"a reply": ask(t, c, dhcpv4.MessageTypeDiscover, func(d *dhcpv4.DHCPv4) { d.OpCode = dhcpv4.OpcodeBootReply }),
	} {
		if r != nil {
			t.Errorf("%s: %s", name, r.Summary())
		}
	}
}

func TestBridge(t *testing.T) {
	nic := masquerade()
	nic.Binding = network.Bridge
	nic.Guest, nic.Gateway = netip.MustParseAddr("192.168.7.9"), netip.MustParsePrefix("169.254.1.1/32")
	nic.Routes = []network.Route{{Destination: netip.MustParsePrefix("169.254.1.1/32"), Via: netip.IPv4Unspecified()}}
	nic.Search = []string{"own.example"}
	r := ask(t, config(t, nic), dhcpv4.MessageTypeDiscover)
	if got := r.ServerIdentifier().String(); got != network.BridgeAddress.Addr().String() {
		t.Errorf("server %s", got)
	}
	routes := r.ClasslessStaticRoute()
	if len(routes) != 2 || routes[0].String() != "route to 169.254.1.1/32 via 0.0.0.0" ||
		routes[1].String() != "route to 0.0.0.0/0 via 169.254.1.1" {
		t.Errorf("routes %v", routes)
	}
	if r.DomainName() != "own.example" {
		t.Errorf("domain %q", r.DomainName())
	}
}

// A network with addresses but no way out offers no router; one without addresses offers nothing.
func TestSecondNetwork(t *testing.T) {
	nic := network.Interface{
		Name: "red", Binding: network.Bridge, PodLink: "podb1f51a511f1", BridgeLink: "k6t-b1f51a511f1",
		MAC: guestMAC.String(), MTU: 1400,
		Guest: netip.MustParseAddr("192.0.2.7"), Bits: 24,
	}
	got := ask(t, config(t, nic), dhcpv4.MessageTypeDiscover).Summary()
	if !strings.Contains(got, "Subnet Mask: ffffff00") || !strings.Contains(got, "Server Identifier: 169.254.75.10") ||
		strings.Contains(got, "Router") || strings.Contains(got, "Classless") {
		t.Error(got)
	}
	nic.Guest, nic.Bits = netip.Addr{}, 0
	if c, ok, err := NewConfig(nic, resolv); ok || err != nil {
		t.Errorf("%+v %v %v", c, ok, err)
	}
}

// A guest that is alone in its subnet is told the way to its gateway before what is behind it.
func TestBehindGateway(t *testing.T) {
	nic := network.Interface{
		Name: "default", Binding: network.Bridge, BridgeLink: "k6t-eth0", MAC: guestMAC.String(), MTU: 1500,
		Guest: netip.MustParseAddr("10.128.1.5"), Bits: 32, Gateway: netip.MustParsePrefix("10.128.1.1/32"),
		Routes: []network.Route{
			{Destination: netip.MustParsePrefix("10.128.1.1/32"), Via: netip.IPv4Unspecified()},
			{Destination: netip.MustParsePrefix("10.128.1.0/24"), Via: netip.MustParseAddr("10.128.1.1")},
		},
	}
	reply := ask(t, config(t, nic), dhcpv4.MessageTypeDiscover)
	if got := net.IP(reply.SubnetMask()).String(); got != "255.255.255.255" {
		t.Errorf("mask %s", got)
	}
	var routes []string
	for _, r := range reply.ClasslessStaticRoute() {
		routes = append(routes, r.Dest.String()+" "+r.Router.String())
	}
	want := []string{"10.128.1.1/32 0.0.0.0", "10.128.1.0/24 10.128.1.1", "0.0.0.0/0 10.128.1.1"}
	if !slices.Equal(routes, want) {
		t.Errorf("routes %v, want %v", routes, want)
	}
}

func TestNewConfigWithoutIPv4(t *testing.T) {
	nic := masquerade()
	nic.Guest = netip.MustParseAddr("fd00::2")
	if _, ok, err := NewConfig(nic, Resolv{}); ok || err != nil {
		t.Error(ok, err)
	}
	nic = masquerade()
	nic.MAC = "nonsense"
	if _, _, err := NewConfig(nic, Resolv{}); err == nil || !strings.Contains(err.Error(), `interface "default"`) {
		t.Error(err)
	}
}

func FuzzReply(f *testing.F) {
	req, err := dhcpv4.NewDiscovery(guestMAC)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(req.ToBytes())
	c, _, err := NewConfig(masquerade(), resolv)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		req, err := dhcpv4.FromBytes(packet)
		if err != nil {
			return
		}
		if reply, err := c.Reply(req); err == nil && reply != nil {
			if _, err := dhcpv4.FromBytes(reply.ToBytes()); err != nil {
				t.Errorf("an unreadable reply: %v", err)
			}
		}
	})
}
