package network

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
)

const redSpec = `
domain: {devices: {interfaces: [{name: default, masquerade: {}}, {name: red, bridge: {}}, {name: blue, bridge: {}}]}}
networks: [{name: default, pod: {}}, {name: red, multus: {networkName: other/red-net}}, {name: blue, multus: {networkName: blue-net}}]
`

// keepingOf has network red keep addresses as a definition says.
func keepingOf(t *testing.T, vmi *v1.VirtualMachineInstance, config string) map[string]ipaddress.Keeping {
	t.Helper()
	d, err := ipaddress.ParseDefinition(config)
	if err != nil {
		t.Fatal(err)
	}
	wished := len(ipaddress.Wished(vmi.Annotations, "red")) > 0
	return map[string]ipaddress.Keeping{"red": ipaddress.Keep(
		vmi.Namespace, &vmi.Spec.Domain.Devices.Interfaces[1], &vmi.Spec.Networks[1], wished, d)}
}

// Announced are addresses that the guest has for certain.
func TestAnnounced(t *testing.T) {
	at := func(list ...string) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	both := Interface{
		Binding: Bridge, Guest: netip.MustParseAddr("192.0.2.7"),
		IPv6: &IPv6{Guest: netip.MustParseAddr("2001:db8::7")},
	}
	for name, test := range map[string]struct {
		nic   Interface
		guard *Guard
		want  []netip.Addr
	}{
		"both": {both, &Guard{Addresses: at("192.0.2.7", "2001:db8::7")}, at("192.0.2.7", "2001:db8::7")},
		"beside its pod's": {
			both, &Guard{Addresses: at("192.0.2.7", "2001:db8::7", "192.0.2.9", "2001:db8::9")},
			at("192.0.2.7", "2001:db8::7"),
		},
		"its pod's alone, of IPv4": {
			both, &Guard{Addresses: at("192.0.2.9", "192.0.2.7", "2001:db8::7")}, at("2001:db8::7"),
		},
		"nothing was said":     {both, &Guard{}, nil},
		"it may send from all": {both, nil, nil},
		"behind masquerade": {
			Interface{Binding: Masquerade, Guest: both.Guest}, &Guard{Addresses: at("192.0.2.7")}, nil,
		},
		"a network without addresses": {Interface{Binding: Bridge}, &Guard{Addresses: at("2001:db8::7")}, nil},
	} {
		test.nic.Guard = test.guard
		if got := test.nic.Announced(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A pod asks for addresses by the way that the network's plugin takes, and says which are to be recorded. The pod that
// a guest moves to asks for none of the guest's.
func TestAskForAddresses(t *testing.T) {
	const (
		local  = `{"type":"bridge","ipam":{"type":"host-local","subnet":"192.0.2.0/24"}}`
		able   = `{"type":"bridge","capabilities":{"ips":true},"ipam":{"type":"host-local","subnet":"192.0.2.0/24"}}`
		static = `{"type":"bridge","capabilities":{"ips":true},"ipam":{"type":"static"}}`
		other  = `{"type":"bridge","ipam":{"type":"whereabouts"}}`
	)
	record := map[string]ipaddress.Given{"red": {Network: "other/red-net", Addresses: []string{"192.0.2.7"}}}
	for name, tc := range map[string]struct {
		config, wish, node string
		record             map[string]ipaddress.Given
		want, kept         string
	}{
		"the first start": {config: local, kept: "red"},
		"the next, by argument": {
			config: local, record: record, want: `,"cni-args":{"ips":["192.0.2.7"]}`, kept: "red",
		},
		"the next, by request":   {config: able, record: record, want: `,"ips":["192.0.2.7"]`, kept: "red"},
		"moves":                  {config: able, record: record, node: "a", kept: "red"},
		"wished":                 {config: able, wish: "192.0.2.9", want: `,"ips":["192.0.2.9"]`, kept: "red"},
		"static":                 {config: static, wish: "192.0.2.9/24", want: `,"ips":["192.0.2.9/24"]`},
		"static, moves":          {config: static, wish: "192.0.2.9/24", node: "a", want: `,"ips":["192.0.2.0/24"]`},
		"a network without ways": {config: other, record: record},
	} {
		vmi := vmiOf(t, redSpec)
		vmi.Annotations, vmi.Status.NodeName = map[string]string{}, tc.node
		if tc.wish != "" {
			vmi.Annotations[ipaddress.Wish] = `{"red":["` + tc.wish + `"]}`
		}
		if tc.record != nil {
			text, err := ipaddress.Encode(vmi.Namespace, vmi.Name, tc.record)
			if err != nil {
				t.Fatal(err)
			}
			vmi.Annotations[ipaddress.Annotation] = text
		}
		got := Annotations(vmi, nil, keepingOf(t, vmi, tc.config))
		want := `[{"name":"red-net","namespace":"other","interface":"podb1f51a511f1"` + tc.want +
			`},{"name":"blue-net","namespace":"ns1","interface":"pod16477688c0e"}]`
		if got[AnnotationNetworks] != want || got[ipaddress.PodAnnotation] != tc.kept {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}

// What Multus reports of an interface's link is what the pod has got.
func TestGot(t *testing.T) {
	vmi := vmiOf(t, redSpec)
	annotations := map[string]string{
		ipaddress.PodAnnotation: "red",
		AnnotationNetworks:      `[{"name":"blue-net","namespace":"other","interface":"podb1f51a511f1"}]`,
		AnnotationStatus: `[{"name":"cbr0","interface":"eth0","ips":["10.0.0.5"],"default":true},` +
			`{"name":"other/red-net","interface":"podb1f51a511f1","ips":["192.0.2.7","fd00::7"]}]`,
	}
	for i, want := range []string{"{ [10.0.0.5] false}", "{other/blue-net [192.0.2.7 fd00::7] true}", "{ [] false}"} {
		got := Got(annotations, &vmi.Spec.Domain.Devices.Interfaces[i], &vmi.Spec.Networks[i])
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", vmi.Spec.Networks[i].Name, got, want)
		}
	}
	got := Got(nil, &vmi.Spec.Domain.Devices.Interfaces[1], &vmi.Spec.Networks[1])
	if got.Kept || got.Addresses != nil {
		t.Errorf("before Multus has reported: %v", got)
	}
}

// A guest that comes is offered the address that it has, not that of its new pod, and the status has it, too; what it
// may send from is not changed by what the API says.
func TestGuestsAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		link             []string
		recorded, wished string
		incoming         bool
		offered, podIPs  string
	}{
		"starts": {
			[]string{"192.0.2.7/24"}, `"192.0.2.9"`, "", false, "192.0.2.7/24 [192.0.2.7]", "[192.0.2.7]",
		},
		"comes": {
			[]string{"192.0.2.7/24"}, `"192.0.2.9"`, "", true, "192.0.2.9/24 [192.0.2.9]", "[192.0.2.7]",
		},
		"comes, nothing is said": {[]string{"192.0.2.7/24"}, "", "", true, "192.0.2.7/24 [192.0.2.7]", "[192.0.2.7]"},
		"comes, of another subnet": {
			[]string{"192.0.2.7/24"}, `"198.51.100.9"`, "", true, "192.0.2.7/24 [192.0.2.7]", "[192.0.2.7]",
		},
		"comes, with two of a family": {
			[]string{"192.0.2.7/24", "198.51.100.7/24"},
			`"198.51.100.9","192.0.2.9"`, "", true,
			"192.0.2.9/24 [192.0.2.9 198.51.100.7]", "[192.0.2.7 198.51.100.7]",
		},
		"comes, static": {
			[]string{"192.0.2.0/24"}, "", "192.0.2.9/24", true, "192.0.2.9/24 [192.0.2.9]", "[]",
		},
		"comes, the wish is gone": {[]string{"192.0.2.0/24"}, "", "", true, "invalid Prefix []", "[]"},
		"comes, of both families": {
			[]string{"192.0.2.7/24", "fd00::7/64"},
			`"192.0.2.9","fd00::9"`, "", true,
			"192.0.2.9/24 [192.0.2.9 fd00::9] fd00::9/64", "[192.0.2.7 fd00::7]",
		},
	} {
		vmi := vmiOf(t, redSpec)
		vmi.Annotations = map[string]string{
			ipaddress.Annotation: `{"vm":"ns1/web.1","interfaces":{"red":{"network":"other/red-net","addresses":[` +
				tc.recorded + `]}}}`,
		}
		if tc.wished != "" {
			vmi.Annotations[ipaddress.Wish] = `{"red":["` + tc.wished + `"]}`
		}
		pod := multusPod()
		pod.Incoming = tc.incoming
		link := &pod.Links[1]
		link.Addresses = nil
		for _, text := range tc.link {
			link.Addresses = append(link.Addresses, netip.MustParsePrefix(text))
			link.Routes = append(link.Routes, Route{Destination: netip.MustParsePrefix(text).Masked()})
		}
		before := slices.Clone(link.Addresses)
		plan, err := NewPlan(vmi, pod)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		nic := plan.Interfaces[1]
		got := fmt.Sprint(nic.Prefix(), " ", nic.Offered())
		if nic.IPv6 != nil {
			got += " " + nic.IPv6.Prefix().String()
		}
		if podIPs := fmt.Sprint(nic.PodIPs); got != tc.offered || podIPs != tc.podIPs {
			t.Errorf("%s: offered %s, the pod has %s", name, got, podIPs)
		}
		if !slices.Equal(before, link.Addresses) {
			t.Errorf("%s: the pod's link is changed: %v", name, link.Addresses)
		}
		if tc.incoming && (nic.Guard == nil || len(nic.Guard.Addresses) > 0) {
			t.Errorf("%s: it may send from %+v", name, nic.Guard)
		}
	}
	behind := Interface{Binding: Masquerade, Guest: netip.MustParseAddr("10.0.2.2")}
	if got := behind.Offered(); got != nil {
		t.Errorf("behind masquerade: %v", got)
	}
}
