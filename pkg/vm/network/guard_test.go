package network

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// A guest sends as others only on the interfaces that its VMI names, and only where its namespace allows it.
func TestAllowSpoofing(t *testing.T) {
	vmi := vmiOf(t, multusSpec)
	plan := func(may bool) (guarded []string, err error) {
		pod := multusPod()
		pod.MaySpoof = may
		p, err := NewPlan(vmi, pod)
		for _, nic := range p.Interfaces {
			if nic.Guard != nil {
				guarded = append(guarded, nic.Name)
			}
		}
		return guarded, err
	}
	for _, may := range []bool{false, true} {
		if got, err := plan(may); err != nil || !slices.Equal(got, []string{"blue", "red"}) {
			t.Errorf("without annotation: %v, %v", got, err)
		}
	}
	vmi.Annotations = map[string]string{AllowSpoofing: " red ,,default"}
	if got, err := plan(true); err != nil || !slices.Equal(got, []string{"blue"}) {
		t.Errorf("allowed: %v, %v", got, err)
	}
	_, err := plan(false)
	const want = `interface "red": the VMI has the annotation virtkit.io/allow-spoofing for it, and namespace ns1 has ` +
		`no label virtkit.io/allow-spoofing=true, which an administrator sets; remove the annotation, or ask for the label`
	if err == nil || err.Error() != want {
		t.Errorf("not allowed:\n%v\nwant\n%s", err, want)
	}
	vmi.Annotations[AllowSpoofing] = "default" // behind masquerade there is nothing to allow
	if got, err := plan(false); err != nil || len(got) != 2 {
		t.Errorf("masquerade: %v, %v", got, err)
	}
	for value, may := range map[string]bool{"true": true, "": false, "false": false, "True": false} {
		if MaySpoof(map[string]string{AllowSpoofing: value}) != may {
			t.Errorf("label %q", value)
		}
	}
	if MaySpoof(nil) {
		t.Error("no label")
	}
}

// Where DHCP offers the pod's addresses they are the guest's, all of them and no others of their family; on the pod
// network of any family. A binding plugin leaves addresses to its network.
func TestGuards(t *testing.T) {
	bridge := strings.Replace(masqueradeSpec, "masquerade", "bridge", 1)
	many := dualPod()
	many.Links[0].Addresses = append(many.Links[0].Addresses, flannelPod().Links[0].Addresses[0].Masked())
	plugged := strings.Replace(masqueradeSpec, "masquerade: {}", "binding: {name: l2}", 1)
	managed := flannelPod()
	managed.Plugins = Plugins{"l2": {DomainAttachmentType: v1.ManagedTap}, "made": {DomainAttachmentType: v1.Tap}}
	made := flannelPod()
	made.Plugins = managed.Plugins
	made.Links[0].Tap = true
	second := `{domain: {devices: {interfaces: [{name: red, bridge: {}}]}},
  networks: [{name: red, multus: {networkName: x}}]}`
	second6 := strings.ReplaceAll(second, "name: red", "name: blue")
	bare := multusPod()
	for i := range bare.Links {
		bare.Links[i].Addresses = nil
	}
	coming, comingOnPod := multusPod(), flannelPod()
	coming.Incoming, comingOnPod.Incoming = true, true
	for name, tc := range map[string]struct {
		spec string
		pod  Pod
		want string
	}{
		"incoming":                     {second, coming, `{}`},
		"incoming, on the pod network": {bridge, comingOnPod, `{"ipv4":true,"ipv6":true,"addresses":["10.42.1.5"]}`},
		"masquerade":                   {masqueradeSpec, dualPod(), `null`},
		"IPv4":                         {bridge, flannelPod(), `{"ipv4":true,"ipv6":true,"addresses":["10.42.1.5"]}`},
		"IPv6":                         {bridge, pod6(), `{"ipv4":true,"ipv6":true,"addresses":["fd00::9"]}`},
		"both":                         {bridge, dualPod(), `{"ipv4":true,"ipv6":true,"addresses":["10.42.1.5","fd42:0:1::5"]}`},
		"several": {
			bridge, many, `{"ipv4":true,"ipv6":true,"addresses":["10.42.1.5","fd42:0:1::5","10.42.1.0"]}`,
		},
		"second network": {second, multusPod(), `{"ipv4":true,"addresses":["192.0.2.7"]}`},
		"second, IPv6":   {second6, multusPod(), `{"ipv6":true,"addresses":["2001:db8::7"]}`},
		"no addresses":   {second, bare, `{}`},
		"managedTap":     {plugged, managed, `{}`},
		"tap":            {strings.Replace(plugged, "l2", "made", 1), made, `null`},
	} {
		plan, err := NewPlan(vmiOf(t, tc.spec), tc.pod)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := json.Marshal(plan.Interfaces[0].Guard); err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tc.want)
		}
	}
}

// A guest that comes from another node keeps the addresses that it may have there, on other networks than the pod's.
func TestAdmit(t *testing.T) {
	at := netip.MustParseAddr
	var many []netip.Addr
	for i := range maxAddresses {
		many = append(many, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}))
	}
	for name, tc := range map[string]struct {
		link   string
		guard  *Guard
		says   Guard
		want   *Guard
		change bool
	}{
		"its own and the pod's": {
			"net1", &Guard{},
			Guard{IPv4: true, Addresses: []netip.Addr{at("192.0.2.7")}},
			&Guard{IPv4: true, Addresses: []netip.Addr{at("192.0.2.7"), at("192.0.2.200")}}, true,
		},
		"no family is managed":         {"net1", &Guard{}, Guard{Addresses: many}, &Guard{}, false},
		"the pod network":              {PodLink, &Guard{IPv4: true}, Guard{}, &Guard{IPv4: true}, false},
		"one that may send as anybody": {"net1", nil, Guard{IPv4: true}, nil, false},
		"none that a guest has": {
			"net1", &Guard{}, Guard{IPv4: true, IPv6: true, Addresses: []netip.Addr{
				{},
				at("0.0.0.0"), at("224.0.0.1"), at("255.255.255.255"), at("::"), at("ff02::1"), at("127.0.0.1"),
				at("fe80::1%eth0"), at("::ffff:192.0.2.9"), at("2001:db8::1%x"),
			}}, &Guard{IPv4: true, IPv6: true, Addresses: []netip.Addr{at("192.0.2.200")}}, true,
		},
		"too many": {
			"net1", &Guard{},
			Guard{IPv4: true, Addresses: many},
			&Guard{IPv4: true, Addresses: slices.Concat(many[:1], many[2:], []netip.Addr{at("192.0.2.200")})}, true,
		},
	} {
		plan := Plan{Interfaces: []Interface{
			{Name: "red", PodLink: tc.link, Guard: tc.guard, PodIPs: []netip.Addr{at("192.0.2.200")}},
		}}
		if got := plan.Admit(map[string]Guard{"red": tc.says, "other": tc.says}); got != tc.change ||
			!reflect.DeepEqual(plan.Interfaces[0].Guard, tc.want) {
			t.Errorf("%s: %v, %+v; want %+v", name, got, plan.Interfaces[0].Guard, tc.want)
		}
		if tc.change && plan.Admit(plan.Guards(nil)) {
			t.Errorf("%s: its own word changes a plan: %+v", name, plan.Interfaces[0].Guard)
		}
	}
}

// What a guest may say of itself on one network it may not say on another, to which its interface moves with it: there
// it has what address management gives its new pod, and any address only where there is none.
func TestAdmitOnAnotherNetwork(t *testing.T) {
	at := netip.MustParseAddr
	there := Guard{IPv4: true, Addresses: []netip.Addr{at("192.0.2.7")}}
	for name, tc := range map[string]struct {
		from, to string
		given    netip.Addr
		says     Guard
		want     *Guard
	}{
		"the same": {
			"ns/red", "ns/red", at("192.0.2.200"), there,
			&Guard{IPv4: true, Addresses: []netip.Addr{at("192.0.2.7"), at("192.0.2.200")}},
		},
		"another": {
			"ns/red", "ns/blue", at("192.0.2.200"), there,
			&Guard{IPv4: true, Addresses: []netip.Addr{at("192.0.2.200")}},
		},
		"from one without addresses": {
			"ns/red", "ns/blue", at("192.0.2.200"),
			Guard{},
			&Guard{IPv4: true, Addresses: []netip.Addr{at("192.0.2.200")}},
		},
		"to one without addresses": {"ns/red", "ns/blue", netip.Addr{}, there, &Guard{}},
		"told by an earlier version": {
			"", "ns/blue", at("192.0.2.200"), there,
			&Guard{IPv4: true, Addresses: []netip.Addr{at("192.0.2.7"), at("192.0.2.200")}},
		},
	} {
		source := Plan{Interfaces: []Interface{{Name: "red", PodLink: "net1", Network: tc.from, Guard: &tc.says}}}
		nic := Interface{Name: "red", PodLink: "net1", Network: tc.to, Guard: &Guard{}, Guest: tc.given}
		if tc.given.IsValid() {
			nic.PodIPs = []netip.Addr{tc.given}
		}
		target := Plan{Interfaces: []Interface{nic}}
		target.Admit(source.Guards(nil))
		if got := target.Interfaces[0].Guard; !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	old := Plan{Interfaces: []Interface{{Name: "red", PodLink: "net1", Guard: &there}}}
	asked := map[string]string{AnnotationNetworks: `[{"name":"red","namespace":"ns","interface":"net1"}]`}
	if got := old.Guards(asked)["red"].Network; got != "ns/red" {
		t.Errorf("a plan of an earlier version is of %q", got)
	}
}
