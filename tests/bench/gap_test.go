package main

import (
	"net/netip"
	"slices"
	"testing"
)

// TestFamiliesOf: a kernel without IPv6 gives no socket of that family, so that only those of the pod's addresses are
// opened.
func TestFamiliesOf(t *testing.T) {
	four, other, six := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.1.2.4"), netip.MustParseAddr("fd00::3")
	for name, tc := range map[string]struct {
		at   []netip.Addr
		want []*family
	}{
		"IPv4 alone":            {[]netip.Addr{four}, []*family{inIPv4}},
		"IPv6 alone":            {[]netip.Addr{six}, []*family{inIPv6}},
		"both, IPv6 first":      {[]netip.Addr{six, four}, []*family{inIPv6, inIPv4}},
		"two addresses of IPv4": {[]netip.Addr{four, other}, []*family{inIPv4}},
	} {
		if got := familiesOf(tc.at); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %d families, not those of the addresses", name, len(got))
		}
	}
}
