package instance

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSlotsNeverOverlap(t *testing.T) {
	var all []netip.Prefix
	for s := Slot(0); s < MaxSlots; s++ {
		for _, n := range s.Networks() {
			for _, other := range all {
				if n.Overlaps(other) {
					t.Fatalf("slot %d: %s overlaps %s", s, n, other)
				}
			}
		}
		all = append(all, s.Networks()...)
		if len(s.Port(MaxNodes)) > 15 {
			t.Errorf("link name %q is longer than the kernel allows", s.Port(MaxNodes))
		}
		if len(s.LANPort(LANs, MaxNodes)) > 15 || len(s.LAN(LANs)) > 15 {
			t.Errorf("link name %q or %q is longer than the kernel allows", s.LANPort(LANs, MaxNodes), s.LAN(LANs))
		}
		for _, f := range []Family{V4, V6} {
			if ip := s.NodeIP(f, MaxNodes); !s.NodeNet(f).Contains(ip) ||
				!s.PodNet(f).Contains(s.NodePodNet(f, MaxNodes).Addr()) {
				t.Errorf("slot %d: the last node's addresses of family %s are outside of its networks", s, f)
			}
		}
	}
}

// The nodes of a slot and their pods never share an address, and each address is where it is looked for.
func TestNodesNeverOverlap(t *testing.T) {
	for _, f := range []Family{V4, V6} {
		pods, ips := map[netip.Prefix]bool{}, map[netip.Addr]bool{Slot(3).HostIP(f): true}
		for k := 1; k <= MaxNodes; k++ {
			pods[Slot(3).NodePodNet(f, k)], ips[Slot(3).NodeIP(f, k)] = true, true
		}
		if len(pods) != MaxNodes || len(ips) != MaxNodes+1 {
			t.Errorf("family %s: %d networks and %d addresses of %d nodes and the machine", f, len(pods), len(ips),
				MaxNodes)
		}
	}
}

// Addresses are in kubeconfigs, certificates and instances' etcds: they stay what they are.
func TestAddresses(t *testing.T) {
	for _, test := range []struct {
		family string
		want   map[string]string
	}{
		{"", map[string]string{
			"server": "https://10.99.13.1:6443", "node12": "10.99.13.22", "pods": "10.141.0.0/16",
			"pods12": "10.141.12.0/24", "services": "10.205.0.0/16", "kubernetes": "10.205.0.1", "dns": "10.205.0.10",
		}},
		{IPv6, map[string]string{
			"server": "https://[fd76:6c6f:6313::1]:6443", "node12": "fd76:6c6f:6313::22",
			"pods": "fd76:6c6f:6313:100::/56", "pods12": "fd76:6c6f:6313:112::/64",
			"services":   "fd76:6c6f:6313:200::/112",
			"kubernetes": "fd76:6c6f:6313:200::1", "dns": "fd76:6c6f:6313:200::10",
		}},
		{Dual, map[string]string{
			"server": "https://10.99.13.1:6443", "node12": "10.99.13.22,fd76:6c6f:6313::22",
			"pods": "10.141.0.0/16,fd76:6c6f:6313:100::/56", "pods12": "10.141.12.0/24,fd76:6c6f:6313:112::/64",
			"services": "10.205.0.0/16,fd76:6c6f:6313:200::/112", "kubernetes": "10.205.0.1,fd76:6c6f:6313:200::1",
			"dns": "10.205.0.10,fd76:6c6f:6313:200::10",
		}},
	} {
		in := &Instance{Slot: 13, Nodes: 12, IPFamily: test.family}
		node := in.NodeList()[11]
		got := map[string]string{
			"server": in.Server(), "node12": List(node.IPs()), "pods": List(in.PodNets()),
			"pods12": List(node.NodePodNets()), "services": List(in.ServiceNets()),
			"kubernetes": List(in.KubernetesIPs()),
			"dns":        List(in.DNSIPs()),
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("family %q (-want +got):\n%s", test.family, diff)
		}
	}
}

func TestChooseSlot(t *testing.T) {
	p := netip.MustParsePrefix
	tests := []struct {
		name   string
		taken  map[Slot]bool
		routed []netip.Prefix
		want   Slot
	}{
		{name: "first", want: 0},
		{name: "lowest free", taken: map[Slot]bool{0: true, 2: true}, want: 1},
		{name: "node network routed", routed: []netip.Prefix{p("10.99.0.0/16")}, want: -1},
		{name: "pod network routed", routed: []netip.Prefix{p("10.128.7.0/24")}, want: 1},
		{name: "service network routed", routed: []netip.Prefix{p("10.192.0.0/15")}, want: 2},
		{name: "a VPN for all of 10/8", routed: []netip.Prefix{p("10.0.0.0/8"), p("0.0.0.0/0")}, want: 0},
		{name: "IPv6 network routed", routed: []netip.Prefix{p("fd76:6c6f:6300:142::/64")}, want: 1},
		{name: "all unique local addresses routed", routed: []netip.Prefix{p("fc00::/7"), p("fd00::/8")}, want: 0},
		{name: "elsewhere", routed: []netip.Prefix{p("192.168.0.0/16"), p("172.17.0.0/16")}, want: 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ChooseSlot(test.taken, test.routed)
			if test.want < 0 {
				if err == nil {
					t.Fatalf("got slot %d, want an error", got)
				}
				return
			}
			if err != nil || got != test.want {
				t.Fatalf("got %d, %v; want %d", got, err, test.want)
			}
		})
	}
}

func TestValidateName(t *testing.T) {
	for _, name := range []string{"virt-local", "a", "e2e-1", "0123456789012345678901234567890123456789"} {
		if err := ValidateName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "-a", "a-", "A", "a.b", "a/b", "..", "01234567890123456789012345678901234567890",
	} {
		if ValidateName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}
