package firewallcmd

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/client/action/firewall"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
)

func TestPrint(t *testing.T) {
	of := firewall.NewReport("ns", "demo")
	of.Interfaces = []nwfilter.Interface{
		{
			Name: "default", Binding: "masquerade", MAC: "02:00:00:00:00:01",
			Unguarded: "the guest is behind the pod's own address",
		},
		{
			Name: "pod", Binding: "bridge", MAC: "02:00:00:00:00:02", IPv4: true, IPv6: true,
			Addresses: []string{"10.1.2.3", "fd00::1"},
			Dropped:   []nwfilter.Dropped{{Kind: "arp", Frames: 3}, {Kind: "nd"}, {Kind: "ip", Frames: 12}},
		},
		{
			Name: "red", Binding: "bridge", MAC: "02:00:00:00:00:03", IPv4: true, Addresses: []string{"192.0.2.7"},
			Dropped: []nwfilter.Dropped{{Kind: "ip"}},
			Policies: []nwfilter.Policy{
				{Name: "names", Passed: []nwfilter.Counted{{Direction: "egress", Frames: 7}}},
				{
					Name:   "web",
					Passed: []nwfilter.Counted{{Direction: "ingress", Frames: 2}, {Direction: "egress"}},
					Wrong:  []string{"spec.ingress[0]: peer 0: is empty", "x"},
				},
			},
			Denied:    []nwfilter.Counted{{Direction: "ingress", Frames: 12}, {Direction: "egress", Frames: 1}},
			Forgotten: 5,
		},
		{Name: "blue", Binding: "bridge"},
		{Name: "card", Binding: "sriov", Unguarded: "the guest has the device itself"},
	}
	var out bytes.Buffer
	if err := print(&out, of); err != nil {
		t.Fatal(err)
	}
	const want = `INTERFACE   BINDING      MAC                 DROPPED        MAY SEND FROM
default     masquerade   02:00:00:00:00:01   -              any: the guest is behind the pod's own address
pod         bridge       02:00:00:00:00:02   3 arp, 12 ip   10.1.2.3, fd00::1, its link-local IPv6
red         bridge       02:00:00:00:00:03   0              192.0.2.7, any IPv6
blue        bridge       -                   0              any IPv4, any IPv6
card        sriov        -                   -              any: the guest has the device itself

INTERFACE   MULTINETWORKPOLICY   PASSED                         REMARK
red         names                7 egress                       -
red         web                  2 ingress, 0 egress            spec.ingress[0]: peer 0: is empty; x
red         (none of them)       dropped 12 ingress, 1 egress   5 connections forgotten: there are too many
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
