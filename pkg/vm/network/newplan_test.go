package network

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

var update = flag.Bool("update", false, "write the golden files")

func flannelPod() Pod {
	return Pod{
		Links: []Link{{
			Name:      "eth0",
			MAC:       "0a:58:0a:2a:01:05",
			MTU:       1450,
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.42.1.5/24")},
			Routes: []Route{
				{Destination: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.42.1.1")},
				{Destination: netip.MustParsePrefix("10.42.1.0/24")},
				{Destination: netip.MustParsePrefix("10.42.0.0/16"), Via: netip.MustParseAddr("10.42.1.1")},
			},
		}},
		Search: []string{"ns1.svc.cluster.local", "svc.cluster.local"},
	}
}

func calicoPod() Pod {
	return Pod{Links: []Link{{
		Name:      "eth0",
		MAC:       "ee:ee:ee:ee:00:01",
		MTU:       1480,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.7.9/32"), netip.MustParsePrefix("fd00::9/128")},
		Routes: []Route{
			{Destination: netip.MustParsePrefix("169.254.1.1/32")},
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("169.254.1.1")},
			{Destination: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("fe80::1")},
		},
	}}}
}

// ptpPod is as the CNI plugin ptp makes it: the pod's own subnet is behind its gateway.
func ptpPod() Pod {
	return Pod{Links: []Link{{
		Name: "eth0", MAC: "0a:58:0a:80:01:05", MTU: 1500,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.128.1.5/24")},
		Routes: []Route{
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.128.1.1")},
			{Destination: netip.MustParsePrefix("10.128.1.0/24"), Via: netip.MustParseAddr("10.128.1.1")},
			{Destination: netip.MustParsePrefix("10.128.1.1/32")},
		},
	}}}
}

// multusPod has two networks more, of which the second has no address management.
func multusPod() Pod {
	pod := ptpPod()
	pod.Multus = true
	pod.Links = append(pod.Links, Link{
		Name: "podb1f51a511f1", MAC: "5a:00:00:00:00:01", MTU: 1400,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24")},
		Routes:    []Route{{Destination: netip.MustParsePrefix("192.0.2.0/24")}},
	}, Link{
		Name: "pod16477688c0e", MAC: "5a:00:00:00:00:02", MTU: 1500,
		Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8::7/64")},
	})
	return pod
}

// dualPod is as a CNI plugin of two families makes it.
func dualPod() Pod {
	pod := flannelPod()
	link := &pod.Links[0]
	link.Addresses = append(link.Addresses, netip.MustParsePrefix("fd42:0:1::5/64"))
	link.Routes = append(link.Routes,
		Route{Destination: netip.MustParsePrefix("fd42:0:1::/64")},
		Route{Destination: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("fd42:0:1::1")})
	for _, a := range []string{"10.96.0.10", "fd96::a", "::1", "fe80::53"} {
		pod.Nameservers = append(pod.Nameservers, netip.MustParseAddr(a))
	}
	return pod
}

// pod6 has no IPv4.
func pod6() Pod {
	pod := calicoPod()
	pod.Links[0].Addresses = pod.Links[0].Addresses[1:]
	pod.Links[0].Routes = pod.Links[0].Routes[2:]
	return pod
}

const multusSpec = `
domain: {devices: {interfaces: [{name: blue, bridge: {}, state: down}, {name: default, masquerade: {}}, {name: red, bridge: {}}, {name: gone, bridge: {}, state: absent}]}}
networks: [{name: default, pod: {}}, {name: red, multus: {networkName: other/red-net}}, {name: blue, multus: {networkName: blue-net}}, {name: gone, multus: {networkName: x}}]
`

// vmiOf has the spec given as YAML.
func vmiOf(t testing.TB, spec string) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns1", Name: "web.1", UID: "6b6a2ad4-9b9c-4ac1-8a3e-2b41a0e9a7d1",
	}}
	if err := yaml.UnmarshalStrict([]byte(spec), &vmi.Spec); err != nil {
		t.Fatal(err)
	}
	return vmi
}

const masqueradeSpec = `
domain: {devices: {interfaces: [{name: default, masquerade: {}}]}}
networks: [{name: default, pod: {}}]
`

func TestNewPlan(t *testing.T) {
	for _, test := range []struct {
		name, spec string
		pod        Pod
	}{
		{"none", `domain: {devices: {autoattachPodInterface: false}}`, flannelPod()},
		{"masquerade", masqueradeSpec, flannelPod()},
		{"masquerade-dual-stack", masqueradeSpec, calicoPod()},
		{"masquerade-dual-stack-cidr", `
subdomain: shop
domain: {devices: {interfaces: [{name: default, masquerade: {}}]}}
networks: [{name: default, pod: {vmIPv6NetworkCIDR: "fd20::7/64"}}]
`, dualPod()},
		{"masquerade-ipv6", masqueradeSpec, pod6()},
		{"bridge-dual-stack", strings.Replace(masqueradeSpec, "masquerade", "bridge", 1), dualPod()},
		{"bridge-ipv6", strings.Replace(masqueradeSpec, "masquerade", "bridge", 1), pod6()},
		{"masquerade-ports", `
domain: {devices: {interfaces: [{name: default, masquerade: {}, ports: [{name: http, port: 80}, {port: 53, protocol: udp}]}]}}
networks: [{name: default, pod: {}}]
`, flannelPod()},
		{"masquerade-cidr-mac", `
domain: {devices: {interfaces: [{name: net, masquerade: {}, macAddress: DE-AD-00-00-BE-AF}]}}
networks: [{name: net, pod: {vmNetworkCIDR: 172.30.4.0/28}}]
`, flannelPod()},
		{"hostname-subdomain", "hostname: front\nsubdomain: shop" + masqueradeSpec, flannelPod()},
		{"bridge", `
domain: {devices: {interfaces: [{name: default, bridge: {}}]}}
networks: [{name: default, pod: {}}]
`, flannelPod()},
		{"bridge-onlink-gateway", `
domain: {devices: {interfaces: [{name: default, bridge: {}, macAddress: "02:00:00:00:00:07"}]}}
networks: [{name: default, pod: {}}]
`, calicoPod()},
		{"bridge-ptp", `
domain: {devices: {interfaces: [{name: default, bridge: {}}]}}
networks: [{name: default, pod: {}}]
`, ptpPod()},
		{"queues-dhcp", `
domain:
  cpu: {sockets: 2, cores: 2, threads: 1}
  devices:
    networkInterfaceMultiqueue: true
    interfaces:
    - {name: default, masquerade: {}, dhcpOptions: {bootFileName: pxe.0, tftpServerName: tftp, ntpServers: [10.0.0.1], privateOptions: [{option: 240, value: x}]}}
    - {name: red, bridge: {}, model: e1000}
networks: [{name: default, pod: {}}, {name: red, multus: {networkName: other/red-net}}]
`, multusPod()},
		{"multus", multusSpec, multusPod()},
		{"multus-default", `
domain: {devices: {interfaces: [{name: red, bridge: {}}]}}
networks: [{name: red, multus: {networkName: red-net, default: true}}]
`, ptpPod()},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := NewPlan(vmiOf(t, test.spec), test.pod)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(plan, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			var back Plan
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatalf("the plan does not survive JSON: %v", err)
			}
			got = append(got, '\n')
			golden := filepath.Join("testdata", test.name+".json")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("plan differs from %s (-want +got), -update to accept:\n%s", golden, diff)
			}
		})
	}
}

func TestNewPlanErrors(t *testing.T) {
	none := calicoPod()
	none.Links[0].Addresses = []netip.Prefix{netip.MustParsePrefix("fe80::9/64")}
	noRoute := flannelPod()
	noRoute.Links[0].Routes = nil
	bridge := strings.Replace(masqueradeSpec, "masquerade", "bridge", 1)
	for _, test := range []struct {
		name, spec, want string
		pod              Pod
	}{
		{
			"no network", `domain: {devices: {interfaces: [{name: a, masquerade: {}}]}}`, `no network is named "a"`,
			flannelPod(),
		},
		{"no multus", strings.ReplaceAll(multusSpec, "red", "green"), "install Multus", flannelPod()},
		{
			"not by multus", strings.ReplaceAll(multusSpec, "red", "green"),
			"NetworkAttachmentDefinition other/green-net", multusPod(),
		},
		{
			"masquerade elsewhere", strings.Replace(multusSpec, "name: red, bridge", "name: red, masquerade", 1),
			"is for the pod network", multusPod(),
		},
		{"no binding", `
domain: {devices: {interfaces: [{name: a}]}}
networks: [{name: a, pod: {}}]`, "set masquerade", flannelPod()},
		{"no link", masqueradeSpec, "no link eth0", Pod{}},
		{"no address", masqueradeSpec, "no IP address", none},
		{"bridge without address", bridge, "no IP address", none},
		{"bridge without gateway", bridge, "no default route", noRoute},
		{"bad CIDR", `
domain: {devices: {interfaces: [{name: a, masquerade: {}}]}}
networks: [{name: a, pod: {vmNetworkCIDR: 10.0.0.0/31}}]`, "vmNetworkCIDR", flannelPod()},
		{"bad IPv6 CIDR", `
domain: {devices: {interfaces: [{name: a, masquerade: {}}]}}
networks: [{name: a, pod: {vmIPv6NetworkCIDR: "fd10::/127"}}]`, "vmIPv6NetworkCIDR", dualPod()},
		{"bad MAC", `
domain: {devices: {interfaces: [{name: a, masquerade: {}, macAddress: "1:2"}]}}
networks: [{name: a, pod: {}}]`, "macAddress", flannelPod()},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewPlan(vmiOf(t, test.spec), test.pod)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// A guest that has come from another node has the MAC that it was given there.
func TestNewPlanKeepsMAC(t *testing.T) {
	vmi := vmiOf(t, multusSpec)
	vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "red", MAC: "5a:00:00:00:00:99"}}
	plan, err := NewPlan(vmi, multusPod())
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Interfaces[2]; got.Name != "red" || got.MAC != "5a:00:00:00:00:99" {
		t.Errorf("%s has %s", got.Name, got.MAC)
	}
}

// Behind masquerade a guest has the MAC that it has had, its VM's record has, or that is made of its VMI's UID, in this
// order; its spec's goes first.
func TestMasqueradeMAC(t *testing.T) {
	vmi := vmiOf(t, masqueradeSpec)
	nic := &vmi.Spec.Domain.Devices.Interfaces[0]
	check := func(want string) {
		t.Helper()
		plan, err := NewPlan(vmi, flannelPod())
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Interfaces[0].MAC; got != want || MasqueradeMAC(vmi, nic) != want {
			t.Errorf("%s, and %s outside of the plan; want %s", got, MasqueradeMAC(vmi, nic), want)
		}
	}
	check(macaddress.Stable(string(vmi.UID), nic.Name))
	text, err := macaddress.Encode(vmi.Namespace, vmi.Name, map[string]string{nic.Name: "02:00:00:00:00:05"})
	if err != nil {
		t.Fatal(err)
	}
	vmi.Annotations = map[string]string{macaddress.Annotation: text}
	check("02:00:00:00:00:05")
	vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: nic.Name, MAC: "02:00:00:00:00:06"}}
	check("02:00:00:00:00:06")
	nic.MacAddress = "02:00:00:00:00:07"
	check("02:00:00:00:00:07")
}

// Multus is asked for the MAC of a VM's record at its start, and for that of the guest where it migrates to; the guest
// has what the CNI plugin made of it.
func TestRecordedMAC(t *testing.T) {
	vmi := vmiOf(t, multusSpec)
	vmi.Annotations = map[string]string{}
	text, err := macaddress.Encode(vmi.Namespace, vmi.Name, map[string]string{"red": "02:00:00:00:00:05"})
	if err != nil {
		t.Fatal(err)
	}
	vmi.Annotations[macaddress.Annotation] = text
	asked := func() string { return Annotations(vmi, nil, nil)[AnnotationNetworks] }
	if got := asked(); !strings.Contains(got, `"mac":"02:00:00:00:00:05","interface":"podb1f51a511f1"`) ||
		strings.Count(got, `"mac"`) != 1 {
		t.Error(got)
	}
	pod := multusPod()
	plan, err := NewPlan(vmi, pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, nic := range plan.Interfaces {
		for _, link := range pod.Links {
			if nic.Binding == Bridge && link.Name == nic.PodLink && nic.MAC != link.MAC {
				t.Errorf("interface %s has %s, and its link %s", nic.Name, nic.MAC, link.MAC)
			}
		}
	}
	vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "red", MAC: "5a:00:00:00:00:99"}}
	if got := asked(); !strings.Contains(got, `"mac":"5a:00:00:00:00:99"`) {
		t.Error(got)
	}
}

func TestAnnotations(t *testing.T) {
	got := Annotations(vmiOf(t,
		strings.Replace(multusSpec, "name: red, bridge: {}", "name: red, bridge: {}, macAddress: '02:00:00:00:00:09'",
			1)), nil, nil)
	want := map[string]string{
		AnnotationNetworks: `[{"name":"red-net","namespace":"other","mac":"02:00:00:00:00:09","interface":"podb1f51a511f1"},` +
			`{"name":"blue-net","namespace":"ns1","interface":"pod16477688c0e"}]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = Annotations(vmiOf(t, `networks: [{name: red, multus: {networkName: red-net, default: true}}]`), nil, nil)
	if diff := cmp.Diff(map[string]string{AnnotationDefaultNetwork: "ns1/red-net"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := Annotations(vmiOf(t, masqueradeSpec), nil, nil); len(got) != 0 {
		t.Errorf("the pod network alone has %v", got)
	}
}

func TestAttachments(t *testing.T) {
	list, known := Attachments(map[string]string{
		AnnotationStatus: `[{"name":"virt-local","interface":"eth0","default":true},{"name":"ns1/red-net","interface":"podb1f51a511f1","mac":"5a:00:00:00:00:01","dns":{}}]`,
	})
	if !known || len(list) != 2 || list[1].Interface != "podb1f51a511f1" {
		t.Errorf("%v %v", list, known)
	}
	for _, bad := range []map[string]string{
		nil, {AnnotationStatus: "x"}, {AnnotationStatus: "[" + strings.Repeat(" ", maxStatus) + "]"},
	} {
		if list, known := Attachments(bad); known || len(list) > 0 {
			t.Errorf("%v %v", list, known)
		}
	}
}
