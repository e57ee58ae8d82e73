package handler

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// FuzzGuards reads what another node says of a guest's addresses. Whatever it is, the plan's own interfaces stay, and
// what becomes of the plan can be kept and told to the next node.
func FuzzGuards(f *testing.F) {
	f.Add(`{"red":{"ipv4":true,"addresses":["192.0.2.7"]}}`)
	f.Add(`{"red":{"ipv6":true,"addresses":["fe80::1%eth0","::ffff:192.0.2.9","2001:db8::7"]},"x":{}}`)
	f.Add(`{"red":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		of, err := parseGuards(text)
		if err != nil {
			return
		}
		plan := network.Plan{Interfaces: []network.Interface{
			{Name: "default", PodLink: network.PodLink, Guard: &network.Guard{IPv4: true}},
			{
				Name: "red", PodLink: "net1", Guard: &network.Guard{},
				PodIPs: []netip.Addr{netip.MustParseAddr("192.0.2.9")},
			},
			{Name: "free", PodLink: "net2"},
		}}
		plan.Admit(of)
		if g := plan.Interfaces[0].Guard; !g.IPv4 || len(g.Addresses) > 0 || plan.Interfaces[2].Guard != nil {
			t.Errorf("%s changes %+v", text, plan.Interfaces)
		}
		for _, a := range plan.Interfaces[1].Guard.Addresses {
			if !a.IsGlobalUnicast() || a.Zone() != "" {
				t.Errorf("%s lets the guest be %s", text, a)
			}
		}
		told, err := json.Marshal(plan.Guards(nil))
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseGuards(string(told))
		if err != nil || plan.Admit(again) {
			t.Errorf("%s: %v", told, err)
		}
	})
}
