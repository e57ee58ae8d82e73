package instance

import (
	"net/netip"
	"testing"
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
		if ip := s.NodeIP(MaxNodes); !s.NodeNet().Contains(ip) || !s.PodNet().Contains(s.NodePodNet(MaxNodes).Addr()) {
			t.Errorf("slot %d: the last node's addresses are outside of its networks", s)
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
