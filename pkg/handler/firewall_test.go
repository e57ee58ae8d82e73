package handler

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
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
	rules := multipolicy.Rules{
		"default": {Policies: []multipolicy.Policy{{Name: "not-here", Ingress: &multipolicy.Direction{}}}},
		"red": {Policies: []multipolicy.Policy{
			{Name: "both", Ingress: &multipolicy.Direction{}, Egress: &multipolicy.Direction{}},
			{Name: "in", Ingress: &multipolicy.Direction{}, Wrong: []string{"spec: no"}},
		}},
		"free": {Policies: []multipolicy.Policy{{Name: "out", Egress: &multipolicy.Direction{}}}},
	}
	passed := map[string]apply.Passage{"red": {
		DroppedIngress: 5, DroppedEgress: 6, Forgotten: 7,
		Ingress: map[string]uint64{"both": 1, "in": 2}, Egress: map[string]uint64{"both": 3},
	}}
	dropped := map[string]map[network.Spoof]uint64{"red": {network.SpoofARP: 3, network.SpoofIP: 1}}
	got := firewallOf(plan, dropped, rules, passed)
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
			Policies: []nwfilter.Policy{
				{
					Name:   "both",
					Passed: []nwfilter.Counted{{Direction: "ingress", Frames: 1}, {Direction: "egress", Frames: 3}},
				},
				{
					Name: "in", Passed: []nwfilter.Counted{{Direction: "ingress", Frames: 2}},
					Wrong: []string{"spec: no"},
				},
			},
			Denied:    []nwfilter.Counted{{Direction: "ingress", Frames: 5}, {Direction: "egress", Frames: 6}},
			Forgotten: 7,
		},
		{
			Name: "free", Binding: "bridge", Unguarded: unguarded[network.Bridge],
			Policies: []nwfilter.Policy{{Name: "out", Passed: []nwfilter.Counted{{Direction: "egress"}}}},
			Denied:   []nwfilter.Counted{{Direction: "egress"}},
		},
		{Name: "card", Binding: "sriov", Unguarded: "the guest has the device itself"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := firewallOf(&network.Plan{}, nil, nil, nil); got.Interfaces == nil {
		t.Error("no interfaces are null")
	}
	for _, binding := range []network.Binding{network.Masquerade, network.Bridge, network.Tap, network.SRIOV} {
		if unguarded[binding] == "" {
			t.Errorf("nothing says why %s is not looked at", binding)
		}
	}
}
