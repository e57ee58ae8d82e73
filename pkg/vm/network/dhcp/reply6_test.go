package dhcp

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

func masquerade6() network.Interface {
	nic := masquerade()
	nic.IPv6 = &network.IPv6{
		Guest: netip.MustParseAddr("fd10:0:2::2"), Bits: 120, Gateway: netip.MustParseAddr("fd10:0:2::1"),
		Router: nic.LinkLocal6(), DNS: []netip.Addr{netip.MustParseAddr("fd96::a")},
		Search: []string{"ns.svc.cluster.local", "not..a.domain"},
	}
	return nic
}

func config6(t testing.TB) Config6 {
	t.Helper()
	c, ok, err := NewConfig6(masquerade6())
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return c
}

// ask6 sends one message to the pure part, as on the wire.
func ask6(t *testing.T, c Config6, kind dhcpv6.MessageType, more ...dhcpv6.Modifier) *dhcpv6.Message {
	t.Helper()
	req, err := dhcpv6.NewMessage(more...)
	if err != nil {
		t.Fatal(err)
	}
	req.MessageType = kind
	if req, err = dhcpv6.MessageFromBytes(req.ToBytes()); err != nil {
		t.Fatal(err)
	}
	reply, err := c.Reply(req)
	if err != nil {
		t.Fatal(err)
	}
	if reply == nil {
		return nil
	}
	if reply.TransactionID != req.TransactionID {
		t.Errorf("transaction %s, want %s", reply.TransactionID, req.TransactionID)
	}
	read, err := dhcpv6.MessageFromBytes(reply.ToBytes())
	if err != nil {
		t.Fatalf("an unreadable reply: %v", err)
	}
	return read
}

var (
	clientID = dhcpv6.WithClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: guestMAC})
	strange  = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: strangerMAC}
	ia       = dhcpv6.WithIAID([4]byte{0, 0, 0, 7})
)

func wants6(address string) dhcpv6.Modifier {
	return dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(address)})
}

func TestAdvertise(t *testing.T) {
	c := config6(t)
	reply := ask6(t, c, dhcpv6.MessageTypeSolicit, clientID, ia, dhcpv6.WithRequestedOptions(dhcpv6.OptionFQDN))
	if reply.MessageType != dhcpv6.MessageTypeAdvertise || !c.Server.Equal(reply.Options.ServerID()) ||
		reply.Options.ClientID() == nil {
		t.Fatal(reply.Summary())
	}
	got := reply.Options.OneIANA()
	address := got.Options.OneAddress()
	if got.IaId != [4]byte{0, 0, 0, 7} || address.IPv6Addr.String() != "fd10:0:2::2" || got.T1 != forever ||
		address.PreferredLifetime != forever || address.ValidLifetime != forever {
		t.Error(reply.Summary())
	}
	if dns := reply.Options.DNS(); len(dns) != 1 || dns[0].String() != "fd96::a" {
		t.Errorf("DNS %v", dns)
	}
	if search := reply.Options.DomainSearchList(); !slices.Equal(search.Labels, []string{"ns.svc.cluster.local"}) {
		t.Errorf("search %v", search)
	}
	name := reply.Options.FQDN()
	if name == nil || !slices.Equal(name.DomainName.Labels, []string{"demo.ns.svc.cluster.local"}) ||
		name.Flags != noUpdates {
		t.Errorf("name %v", name)
	}
	if quiet := ask6(t, c, dhcpv6.MessageTypeSolicit, clientID, ia); quiet.Options.FQDN() != nil {
		t.Error("a client that does not ask is told its name")
	}
}

func TestReply6(t *testing.T) {
	c := config6(t)
	server := dhcpv6.WithServerID(c.Server)
	for _, test := range []struct {
		name   string
		kind   dhcpv6.MessageType
		with   []dhcpv6.Modifier
		status iana.StatusCode
		ia     bool
	}{
		{"rapid commit", dhcpv6.MessageTypeSolicit, []dhcpv6.Modifier{clientID, ia, dhcpv6.WithRapidCommit}, 0, true},
		{"request", dhcpv6.MessageTypeRequest, []dhcpv6.Modifier{clientID, server, ia}, 0, true},
		{"renew", dhcpv6.MessageTypeRenew, []dhcpv6.Modifier{clientID, server, wants6("fd10:0:2::2")}, 0, true},
		{"rebind", dhcpv6.MessageTypeRebind, []dhcpv6.Modifier{clientID, wants6("fd10:0:2::2")}, 0, true},
		{"confirm", dhcpv6.MessageTypeConfirm, []dhcpv6.Modifier{clientID, wants6("fd10:0:2::2")}, 0, false},
		{
			"confirm of elsewhere", dhcpv6.MessageTypeConfirm,
			[]dhcpv6.Modifier{clientID, wants6("fd99::2")},
			iana.StatusNotOnLink, false,
		},
		{"release", dhcpv6.MessageTypeRelease, []dhcpv6.Modifier{clientID, server, ia}, 0, false},
		{"decline", dhcpv6.MessageTypeDecline, []dhcpv6.Modifier{clientID, server, ia}, 0, false},
		{"information", dhcpv6.MessageTypeInformationRequest, nil, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			reply := ask6(t, c, test.kind, test.with...)
			if reply == nil || reply.MessageType != dhcpv6.MessageTypeReply {
				t.Fatalf("%v", reply)
			}
			got := iana.StatusSuccess
			if s := reply.Options.Status(); s != nil {
				got = s.StatusCode
			}
			if got != test.status || (reply.Options.OneIANA() != nil) != test.ia {
				t.Error(reply.Summary())
			}
			if test.ia && reply.Options.OneIANA().Options.OneAddress().IPv6Addr.String() != "fd10:0:2::2" {
				t.Error(reply.Summary())
			}
			if test.kind == dhcpv6.MessageTypeInformationRequest && len(reply.Options.DNS()) != 1 {
				t.Error(reply.Summary())
			}
		})
	}
}

// A guest has one address and no prefix; an address that it brings from elsewhere is over.
func TestAssociations(t *testing.T) {
	c := config6(t)
	more := func(m dhcpv6.DHCPv6) {
		for i := range byte(20) {
			m.AddOption(&dhcpv6.OptIANA{IaId: [4]byte{i}})
		}
	}
	reply := ask6(t, c, dhcpv6.MessageTypeRebind, clientID, wants6("fd99::9"), dhcpv6.WithIAPD([4]byte{1}),
		dhcpv6.WithIATA([4]byte{2}), more)
	all := reply.Options.IANA()
	if len(all) != maxAssociations-2 {
		t.Errorf("%d associations", len(all))
	}
	addresses := all[0].Options.Addresses()
	if len(addresses) != 2 || addresses[0].ValidLifetime != forever || addresses[1].IPv6Addr.String() != "fd99::9" ||
		addresses[1].ValidLifetime != 0 {
		t.Errorf("%v", addresses)
	}
	for _, ia := range all[1:] {
		if ia.Options.OneAddress() != nil || ia.Options.Status().StatusCode != iana.StatusNoAddrsAvail {
			t.Errorf("%v", ia)
		}
	}
	if pd := reply.Options.OneIAPD(); pd == nil || pd.Options.Status().StatusCode != iana.StatusNoPrefixAvail {
		t.Errorf("%v", pd)
	}
	ta := reply.Options.OneIATA()
	if ta == nil || ta.Options.Status().StatusCode != iana.StatusNoAddrsAvail {
		t.Errorf("%v", ta)
	}
}

func TestSilence6(t *testing.T) {
	c := config6(t)
	server, other := dhcpv6.WithServerID(c.Server), dhcpv6.WithServerID(strange)
	for name, r := range map[string]*dhcpv6.Message{
		"nobody's solicit":       ask6(t, c, dhcpv6.MessageTypeSolicit, ia),
		"solicit to a server":    ask6(t, c, dhcpv6.MessageTypeSolicit, clientID, server, ia),
		"request to another":     ask6(t, c, dhcpv6.MessageTypeRequest, clientID, other, ia),
		"request to nobody":      ask6(t, c, dhcpv6.MessageTypeRequest, clientID, ia),
		"rebind to a server":     ask6(t, c, dhcpv6.MessageTypeRebind, clientID, server, ia),
		"confirm of nothing":     ask6(t, c, dhcpv6.MessageTypeConfirm, clientID, ia),
		"information of another": ask6(t, c, dhcpv6.MessageTypeInformationRequest, other),
		"information and more":   ask6(t, c, dhcpv6.MessageTypeInformationRequest, ia),
		"a reply":                ask6(t, c, dhcpv6.MessageTypeReply, clientID, server, ia),
		"an advertisement":       ask6(t, c, dhcpv6.MessageTypeAdvertise, clientID, server, ia),
		"a reconfiguration":      ask6(t, c, dhcpv6.MessageTypeReconfigure, clientID, server),
	} {
		if r != nil {
			t.Errorf("%s: %s", name, r.Summary())
		}
	}
	for from, want := range map[string]bool{
		"fe80::7%eth0": true, "fd10:0:2::2": true, "fd10:0:2::3": false, "::1": false, "::": false, "ff02::1": false,
	} {
		if got := c.answers(netip.MustParseAddr(from)); got != want {
			t.Errorf("%s is answered: %t", from, got)
		}
	}
}

// A client that asks for its boot file is told the URL of it, where one can be made of the VMI's options.
func TestBootFile6(t *testing.T) {
	for name, test := range map[string]struct {
		file, server, want string
		silent             bool
	}{
		"a URL":           {file: "http://boot.example/x.efi", server: "192.0.2.1", want: "http://boot.example/x.efi"},
		"by name":         {file: "pxe.0", server: "tftp.example", want: "tftp://tftp.example/pxe.0"},
		"by IPv6":         {file: "/efi/a b", server: "2001:db8::1", want: "tftp://[2001:db8::1]/efi/a%20b"},
		"by IPv4":         {file: "pxe.0", server: "192.0.2.1"},
		"no server":       {file: "pxe.0"},
		"no file":         {server: "tftp.example"},
		"nobody asks":     {file: "pxe.0", server: "tftp.example", silent: true},
		"no scheme in it": {file: "://x", server: "tftp.example", want: "tftp://tftp.example/://x"},
	} {
		nic := masquerade6()
		nic.DHCP = &network.DHCPOptions{BootFile: test.file, TFTPServer: test.server}
		c, ok, err := NewConfig6(nic)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		more := []dhcpv6.Modifier{dhcpv6.WithClientID(&dhcpv6.DUIDLL{
			HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 7},
		})}
		if !test.silent {
			more = append(more, dhcpv6.WithRequestedOptions(dhcpv6.OptionBootfileURL))
		}
		reply := ask6(t, c, dhcpv6.MessageTypeInformationRequest, more...)
		if got := reply.Options.BootFileURL(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestNewConfig6WithoutIPv6(t *testing.T) {
	if _, ok, err := NewConfig6(masquerade()); ok || err != nil {
		t.Error(ok, err)
	}
	nic := masquerade6()
	nic.IPv6.Guest = netip.Addr{}
	if _, _, err := NewConfig6(nic); err == nil {
		t.Error("no address is an address")
	}
}

// FuzzReply6 answers what a guest may send. An answer is readable, bounded, and gives no other address.
func FuzzReply6(f *testing.F) {
	c := config6(f)
	for _, kind := range []dhcpv6.MessageType{
		dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind,
		dhcpv6.MessageTypeInformationRequest, dhcpv6.MessageTypeRelease,
	} {
		m, err := dhcpv6.NewMessage(clientID, ia, dhcpv6.WithServerID(c.Server), dhcpv6.WithIAPD([4]byte{1}),
			dhcpv6.WithIATA([4]byte{2}), wants6("fd99::9"), dhcpv6.WithFQDN(1, "x.example"), dhcpv6.WithRapidCommit)
		if err != nil {
			f.Fatal(err)
		}
		m.MessageType = kind
		f.Add(m.ToBytes())
		m.Options.Del(dhcpv6.OptionServerID)
		f.Add(m.ToBytes())
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		req, err := dhcpv6.MessageFromBytes(packet)
		if err != nil {
			return
		}
		reply, err := c.Reply(req)
		if err != nil || reply == nil {
			return
		}
		out := reply.ToBytes()
		read, err := dhcpv6.MessageFromBytes(out)
		if err != nil {
			t.Fatalf("an unreadable reply: %v", err)
		}
		if len(out) > len(packet)+512 {
			t.Errorf("%d bytes are answered with %d", len(packet), len(out))
		}
		for _, ia := range read.Options.IANA() {
			for _, a := range ia.Options.Addresses() {
				if a.ValidLifetime != 0 && !a.IPv6Addr.Equal(c.Client.AsSlice()) {
					t.Errorf("the guest is given %s", a.IPv6Addr)
				}
			}
		}
	})
}
