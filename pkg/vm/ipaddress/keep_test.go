package ipaddress

import (
	"fmt"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

const (
	local   = `{"type":"bridge","ipam":{"type":"host-local","subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","rangeEnd":"192.0.2.20"}}`
	dual    = `{"plugins":[{"type":"bridge","capabilities":{"ips":true,"mac":true},"ipam":{"type":"host-local","ranges":[[{"subnet":"192.0.2.0/28"},{"subnet":"198.51.100.0/30"}],[{"subnet":"fd00::/64"}]]}},{"type":"tuning"}]}`
	fixed   = `{"type":"macvlan","ipam":{"type":"static","addresses":[{"address":"192.0.2.5/24"}]}}`
	given   = `{"type":"macvlan","capabilities":{"ips":true},"ipam":{"type":"static"}}`
	where   = `{"type":"macvlan","ipam":{"type":"whereabouts","range":"192.0.2.0/24"}}`
	capable = `{"type":"macvlan","capabilities":{"ips":true},"ipam":{"type":"spiderpool"}}`
	ovn     = `{"type":"ovn-k8s-cni-overlay","topology":"layer2","subnets":"192.0.2.0/24"}`
)

// For an interface and its network's definition: whether the address is kept, by which way, or why not; and what is
// said to who wishes for an address.
func TestKeep(t *testing.T) {
	for name, tc := range map[string]struct {
		nic, network, config string
		way                  Way
		why                  string
		// wish is refused with refusal; wishWay is how it is asked for.
		wish    string
		wishWay Way
		refusal string
	}{
		"host-local":                  {config: local, way: ByArgument, wish: "192.0.2.10", wishWay: ByArgument},
		"host-local, with a prefix":   {config: local, way: ByArgument, wish: "192.0.2.20/24", wishWay: ByArgument},
		"host-local, with capability": {config: dual, way: ByRequest, wish: "192.0.2.7 fd00::7", wishWay: ByRequest},
		"host-local, out of range": {
			config: local, way: ByArgument, wish: "192.0.2.21", wishWay: ByArgument,
			refusal: "192.0.2.21 is not among the addresses that network shop/net gives, 192.0.2.10-192.0.2.20; " +
				"give one of these",
		},
		"host-local, the other family": {
			config: local, way: ByArgument, wish: "fd00::1", wishWay: ByArgument, refusal: "fd00::1 is not among",
		},
		"host-local, the gateway's": {
			config: dual, way: ByRequest, wish: "192.0.2.1", wishWay: ByRequest,
			refusal: "192.0.2.1 is not among the addresses that network shop/net gives, " +
				"192.0.2.1-192.0.2.14,198.51.100.1-198.51.100.2 and fd00::1-fd00::",
		},
		"host-local, two of one set": {
			config: dual, way: ByRequest, wish: "192.0.2.7 198.51.100.2", wishWay: ByRequest,
			refusal: "and not both 192.0.2.7 and 198.51.100.2",
		},
		"host-local, a range of one": {
			config: `{"type":"bridge","ipam":{"type":"host-local","subnet":"192.0.2.0/24","rangeStart":"192.0.2.50",` +
				`"rangeEnd":"192.0.2.50"}}`,
			way: ByArgument, wish: "192.0.2.20", wishWay: ByArgument, refusal: "gives, 192.0.2.50-192.0.2.50",
		},
		"host-local, a range that ends with the gateway": {
			config: `{"type":"bridge","ipam":{"type":"host-local","subnet":"192.0.2.0/24","rangeEnd":"192.0.2.50",` +
				`"gateway":"192.0.2.50"}}`,
			way: ByArgument, wish: "192.0.2.51", wishWay: ByArgument, refusal: "gives, 192.0.2.1-192.0.2.50",
		},
		"host-local, a range that is none": {
			config: `{"type":"bridge","ipam":{"type":"host-local","subnet":"x"}}`, way: ByArgument,
			wish: "192.0.2.7", wishWay: ByArgument,
		},
		"static with addresses": {
			config: fixed, way: ByDefinition, wish: "192.0.2.7/24", wishWay: ByArgument,
		},
		"static without": {
			config: given, why: "gives addresses that are asked for alone", wish: "192.0.2.7/24", wishWay: ByRequest,
		},
		"static, no prefix": {
			config: given, why: "asked for alone", wish: "192.0.2.7", wishWay: ByRequest,
			refusal: "192.0.2.7 has no length of a prefix, which the IPAM plugin static of network shop/net needs",
		},
		"whereabouts": {
			config: where, why: "the IPAM plugin whereabouts of network shop/net is not known to take addresses",
			wish: "192.0.2.7", refusal: "whereabouts",
		},
		"another whose keys are of other kinds": {
			config: `{"type":"macvlan","capabilities":{"ips":true},"subnets":["192.0.2.0/24"],"allowPersistentIPs":1,` +
				`"ipam":{"type":"spiderpool","ranges":["192.0.2.0/24"],"addresses":"all"}}`,
			way: ByRequest, wish: "192.0.2.7", wishWay: ByRequest,
		},
		"host-local, ranges that are none": {
			config: `{"type":"bridge","ipam":{"type":"host-local","ranges":["192.0.2.0/24"]}}`, way: ByArgument,
			wish: "192.0.2.7", wishWay: ByArgument,
		},
		"another with capability": {config: capable, way: ByRequest, wish: "192.0.2.7", wishWay: ByRequest},
		"dhcp": {
			config: `{"type":"macvlan","ipam":{"type":"dhcp"}}`, why: "asks the DHCP server anew", wish: "192.0.2.7",
			refusal: "asks the DHCP server anew",
		},
		"no address management": {
			config: `{"type":"bridge","ipam":{}}`, wish: "192.0.2.7", refusal: "gives no addresses (its ipam is empty)",
		},
		"OVN-Kubernetes": {
			config: ovn, why: "does not have allowPersistentIPs", wish: "192.0.2.7", refusal: "allowPersistentIPs",
		},
		"OVN-Kubernetes, persistent": {
			config: strings.Replace(ovn, `"subnets"`, `"allowPersistentIPs":true,"subnets"`, 1), way: ByClaim,
			wish: "192.0.2.7", wishWay: ByClaim, refusal: "chooses the addresses, and keeps them",
		},
		"OVN-Kubernetes without addresses": {
			config: `{"type":"ovn-k8s-cni-overlay","topology":"localnet"}`, wish: "192.0.2.7",
			refusal: "gives no addresses",
		},
		"kube-ovn": {
			config: `{"type":"kube-ovn","provider":"x"}`, why: "kube-ovn keeps addresses by annotations",
			wish: "192.0.2.7", refusal: "kube-ovn",
		},
		"a file of the nodes": {config: " ", why: "is on the nodes", wish: "192.0.2.7"},
		"no definition":       {why: "there is no NetworkAttachmentDefinition shop/net yet", wish: "192.0.2.7"},
		"the pod network":     {network: "pod: {}", why: "gives each pod an address", wish: "192.0.2.7"},
		"Multus' first": {
			network: "multus: {networkName: net, default: true}", config: local, why: "on the pod's first network",
			wish: "192.0.2.10", refusal: "on the pod's first network",
		},
		"SR-IOV": {nic: "sriov: {}", config: local, wish: "192.0.2.10", refusal: "are set in the guest"},
	} {
		t.Run(name, func(t *testing.T) {
			nic := read[v1.Interface](t, "{name: red, "+or(tc.nic, "bridge: {}")+"}")
			n := read[v1.Network](t, "{name: red, "+or(tc.network, "multus: {networkName: net}")+"}")
			var d *Definition
			if tc.config != "" {
				var err error
				if d, err = ParseDefinition(tc.config); err != nil {
					t.Fatal(err)
				}
			}
			got := Keep("shop", nic, n, false, d)
			if got.Way != tc.way || (got.Why == "") != (tc.why == "") || !strings.Contains(got.Why, tc.why) {
				t.Errorf("%q, why %q", got.Way, got.Why)
			}
			var wish []Address
			for _, text := range strings.Fields(tc.wish) {
				wish = append(wish, must(t, text))
			}
			got = Keep("shop", nic, n, true, d)
			refusal := got.Refusal(wish)
			if got.Way != tc.wishWay || (refusal == "") != (tc.refusal == "") ||
				!strings.Contains(refusal, tc.refusal) {
				t.Errorf("wished: %q, refused %q", got.Way, refusal)
			}
		})
	}
	if _, err := ParseDefinition("{"); err == nil || !strings.Contains(err.Error(), "spec.config is not a CNI") {
		t.Error(err)
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// What a pod asks for when a guest starts, and when it moves there.
func TestAsk(t *testing.T) {
	recorded := recordOf("shop/web", "shop/red-net", `"192.0.2.12"`)
	for name, tc := range map[string]struct {
		config, record, wish string
		start, target        string
		recorded             bool
	}{
		"the first start":      {local, "", "", "[]", "[]", true},
		"the next":             {local, recorded, "", "[192.0.2.12]", "[]", true},
		"wished":               {local, recorded, `{"red":["192.0.2.13"]}`, "[192.0.2.13]", "[]", true},
		"no more in the range": {local, recordOf("shop/web", "shop/red-net", `"192.0.2.99"`), "", "[]", "[]", true},
		"static": {
			given, recorded, `{"red":["192.0.2.7/24","fd00::7/64","198.51.100.9/32"]}`,
			"[192.0.2.7/24 fd00::7/64 198.51.100.9/32]", "[192.0.2.0/24 fd00::/64 198.51.100.9/32]", false,
		},
		"static's own":            {fixed, recorded, "", "[]", "[]", false},
		"a plugin with addresses": {capable, recorded, "", "[192.0.2.12]", "[]", true},
		"none that keeps":         {where, recorded, "", "[]", "[]", false},
	} {
		vmi := vmiOf(t, tc.record, tc.wish)
		d, err := ParseDefinition(tc.config)
		if err != nil {
			t.Fatal(err)
		}
		keeping := Keep("shop", &vmi.Spec.Domain.Devices.Interfaces[1], &vmi.Spec.Networks[1], tc.wish != "", d)
		start, target := fmt.Sprint(keeping.Ask(vmi, "red", false)), fmt.Sprint(keeping.Ask(vmi, "red", true))
		if start != tc.start || target != tc.target || keeping.Recorded() != tc.recorded {
			t.Errorf("%s: starts with %s, moves with %s, recorded %v", name, start, target, keeping.Recorded())
		}
		// A network to which the guest comes is asked as at a start.
		keeping.Comes = true
		if target := fmt.Sprint(keeping.Ask(vmi, "red", true)); target != start {
			t.Errorf("%s: comes with %s, want %s", name, target, start)
		}
	}
}

// What stands in for a guest's address is known again on the link.
func TestStands(t *testing.T) {
	for text, want := range map[string]bool{
		"192.0.2.7/24": true, "198.51.100.9/32": false, "192.0.2.6/31": false, "fd00::7/64": true,
	} {
		a := must(t, text)
		if Stands(a.Prefix()) || Stands(standIn(a).Prefix()) != want || !want && standIn(a) != a {
			t.Errorf("%s: %s stands for it", text, standIn(a))
		}
	}
	if got := standIn(must(t, "192.0.2.7")); got.Bits >= 0 {
		t.Error(got)
	}
	if !Named(Names([]string{"a", "red"}), "red") || Named("redder", "red") || Named("", "red") {
		t.Error("the pod's annotation")
	}
}

// FuzzDefinition: a tenant's definition, wish and record are read or refused, and what is asked for is what Parse
// reads.
func FuzzDefinition(f *testing.F) {
	for _, config := range []string{local, dual, fixed, given, where, capable, ovn, "", "{", `{"plugins":[null]}`} {
		f.Add(config, `{"red":["192.0.2.7/24"]}`, recordOf("shop/web", "shop/red-net", `"192.0.2.12"`))
	}
	f.Fuzz(func(t *testing.T, config, wish, record string) {
		d, err := ParseDefinition(config)
		if err != nil {
			return
		}
		vmi := &v1.VirtualMachineInstance{}
		vmi.Namespace, vmi.Name = "shop", "web"
		vmi.Annotations = map[string]string{Wish: wish, Annotation: record}
		vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "red"}}
		n := v1.Network{Name: "red"}
		n.Multus = &v1.MultusNetwork{NetworkName: "red-net"}
		vmi.Spec.Networks = []v1.Network{n}
		wished := Wished(vmi.Annotations, "red")
		keeping := Keep("shop", &vmi.Spec.Domain.Devices.Interfaces[0], &n, len(wished) > 0, d)
		refused := keeping.Refusal(wished) != ""
		for _, text := range keeping.Ask(vmi, "red", false) {
			if _, err := Parse(text); err != nil {
				t.Errorf("asks for %v", err)
			}
		}
		for _, c := range OfVMI(vmi) {
			if !c.Address.IsGlobalUnicast() {
				t.Errorf("claims %s", c.Address)
			}
		}
		if keeping.Way == "" && !refused && d.IPAM != "" && !d.Unread && len(wished) > 0 {
			t.Errorf("%s: nothing is said", config)
		}
		keeping.Ask(vmi, "red", true)
	})
}
