package handler

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

func TestFirewallOf(t *testing.T) {
	plan := &network.Plan{Interfaces: []network.Interface{
		{Name: "default", Binding: network.Masquerade, MAC: "02:00:00:00:00:01"},
		{
			Name: "red", Binding: network.Bridge, MAC: "02:00:00:00:00:02",
			Guard: &network.Guard{IPv4: true, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9")}},
		},
		{Name: "free", Binding: network.Bridge},
		{Name: "card", Binding: network.SRIOV},
	}}
	got := firewallOf(plan, map[string]map[network.Spoof]uint64{"red": {network.SpoofARP: 3, network.SpoofIP: 1}})
	want := &nwfilter.Filter{Interfaces: []nwfilter.Interface{
		{
			Name: "default", Binding: "masquerade", MAC: "02:00:00:00:00:01",
			Unguarded: "the guest is behind the pod's own address",
		},
		{
			Name: "red", Binding: "bridge", MAC: "02:00:00:00:00:02", IPv4: true, Addresses: []string{"192.0.2.9"},
			Dropped: []nwfilter.Dropped{
				{Kind: "mac"},
				{Kind: "hidden"},
				{Kind: "arp", Frames: 3},
				{Kind: "dhcp"},
				{Kind: "router"},
				{Kind: "nd"},
				{Kind: "ip", Frames: 1},
			},
		},
		{Name: "free", Binding: "bridge", Unguarded: "the annotation virtkit.io/allow-spoofing names it"},
		{Name: "card", Binding: "sriov", Unguarded: "the guest has the device itself"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := firewallOf(&network.Plan{}, nil); got.Interfaces == nil {
		t.Error("no interfaces are null")
	}
	for _, binding := range []network.Binding{network.Masquerade, network.Bridge, network.Tap, network.SRIOV} {
		if unguarded[binding] == "" {
			t.Errorf("nothing says why %s is not looked at", binding)
		}
	}
}
