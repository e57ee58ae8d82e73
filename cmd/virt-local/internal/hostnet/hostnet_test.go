package hostnet

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// The machine's links of all instances differ, and the kernel takes their names; so do hardware addresses.
func TestLinks(t *testing.T) {
	names, addresses := map[string]bool{}, map[string]bool{}
	for slot := instance.Slot(0); slot < instance.MaxSlots; slot++ {
		links := append(lanLinks(slot), slot.Bridge())
		for k := 1; k <= instance.MaxNodes; k++ {
			links = append(links, slot.Port(k))
		}
		for _, name := range links {
			if names[name] || len(name) >= unix.IFNAMSIZ {
				t.Errorf("link %q is twice there, or its name is too long", name)
			}
			names[name] = true
		}
		macs := []net.HardwareAddr{bridgeMAC(slot)}
		for k := 1; k <= instance.MaxNodes; k++ {
			macs = append(macs, nodeMAC(slot, k))
		}
		for _, mac := range macs {
			if len(mac) != 6 || mac[0]&3 != 2 || addresses[mac.String()] { // one device's, locally administered
				t.Errorf("hardware address %s of slot %d", mac, slot)
			}
			addresses[mac.String()] = true
		}
	}
	if len(names) != instance.MaxSlots*(1+instance.MaxNodes+instance.LANs*(1+instance.MaxNodes)) {
		t.Errorf("%d links", len(names))
	}
}

// masquerades evaluates a rule as the kernel does, for a packet from an address that leaves by a link.
func masquerades(t *testing.T, rule []expr.Any, from netip.Addr, link string) bool {
	t.Helper()
	header := make([]byte, 40)
	if from.Is4() {
		copy(header[12:], from.AsSlice()) // RFC 791, section 3.1
	} else {
		copy(header[8:], from.AsSlice()) // RFC 8200, section 3
	}
	var register []byte
	for _, e := range rule {
		switch e := e.(type) {
		case *expr.Payload:
			if e.Base != expr.PayloadBaseNetworkHeader {
				t.Fatalf("payload of base %d", e.Base)
			}
			register = bytes.Clone(header[e.Offset : e.Offset+e.Len])
		case *expr.Bitwise:
			for i := range register {
				register[i] = register[i]&e.Mask[i] ^ e.Xor[i]
			}
		case *expr.Meta:
			if e.Key != expr.MetaKeyOIFNAME {
				t.Fatalf("meta %d", e.Key)
			}
			register = make([]byte, unix.IFNAMSIZ)
			copy(register, link)
		case *expr.Cmp:
			if bytes.Equal(register, e.Data) != (e.Op == expr.CmpOpEq) {
				return false
			}
		case *expr.Masq:
			return true
		default:
			t.Fatalf("expression %T", e)
		}
	}
	return false
}

// What leaves a network by another link than its bridge is masqueraded, whatever the network's size; nothing else is.
func TestMasquerade(t *testing.T) {
	for _, test := range []struct {
		network string
		inside  []string
		outside []string
	}{
		{"10.99.3.0/24", []string{"10.99.3.0", "10.99.3.11", "10.99.3.255"}, []string{"10.99.2.255", "10.99.4.0"}},
		{"10.96.0.0/16", []string{"10.96.0.0", "10.96.255.255"}, []string{"10.95.255.255", "10.97.0.0"}},
		{"10.96.16.0/20", []string{"10.96.16.1", "10.96.31.255"}, []string{"10.96.15.255", "10.96.32.0"}},
		{"10.1.2.3/20", []string{"10.1.0.1", "10.1.15.255"}, []string{"10.1.16.0"}},
		{
			"fd76:6c6f:6303::/64",
			[]string{"fd76:6c6f:6303::", "fd76:6c6f:6303::11", "fd76:6c6f:6303:0:ffff:ffff:ffff:ffff"},
			[]string{"fd76:6c6f:6303:1::", "fd76:6c6f:6302:ffff::11"},
		},
		{
			"fd76:6c6f:6303:100::/56",
			[]string{"fd76:6c6f:6303:100::", "fd76:6c6f:6303:164::2", "fd76:6c6f:6303:1ff::2"},
			[]string{"fd76:6c6f:6303:200::10", "fd76:6c6f:6303::11", "fd76:6c6f:6304:101::2", "2001:db8::1"},
		},
		{"10.0.0.8/32", []string{"10.0.0.8"}, []string{"10.0.0.9", "10.0.0.7"}},
	} {
		rule := masqueradeFrom(netip.MustParsePrefix(test.network), "vlocal3")
		for _, address := range test.inside {
			from := netip.MustParseAddr(address)
			if !masquerades(t, rule, from, "eth0") || !masquerades(t, rule, from, "vlocal30") {
				t.Errorf("%s: what %s sends beyond the machine is not masqueraded", test.network, address)
			}
			if masquerades(t, rule, from, "vlocal3") {
				t.Errorf("%s: what %s sends to its neighbours is masqueraded", test.network, address)
			}
		}
		for _, address := range test.outside {
			if masquerades(t, rule, netip.MustParseAddr(address), "eth0") {
				t.Errorf("%s: %s is masqueraded", test.network, address)
			}
		}
	}
}
