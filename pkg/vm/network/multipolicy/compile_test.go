package multipolicy

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

var update = flag.Bool("update", false, "write the golden files")

// policy is one of namespace default for network default/red; spec is YAML.
func policy(t *testing.T, name, spec string) MultiNetworkPolicy {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	return MultiNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Annotations: map[string]string{AnnotationFor: "blue, red"},
		},
		Spec: text,
	}
}

func end(macs string, addresses ...string) End {
	var out End
	if macs != "" {
		out.MACs = []string{macs}
	}
	for _, a := range addresses {
		out.Addresses = append(out.Addresses, netip.MustParseAddr(a))
	}
	return out
}

// input is a guest on default/red among pods of three namespaces.
func input(policies ...MultiNetworkPolicy) *Input {
	port := func(name string, number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: name, ContainerPort: number}}
	}
	return &Input{
		Namespace: "default", Labels: map[string]string{"app": "site", "vm.kubevirt.io/name": "demo"},
		Ports: []corev1.ContainerPort{
			{Name: "web", ContainerPort: 8080}, {Name: "web", ContainerPort: 53, Protocol: "UDP"},
		},
		Interfaces: map[string][]string{"red": {"default/red"}, "green": {"other/green"}},
		Policies:   policies,
		Namespaces: map[string]map[string]string{"default": {"team": "a"}, "shop": {"team": "b"}, "lab": {"team": "b"}},
		Peers: []Peer{
			{
				Namespace: "default", Name: "till", Labels: map[string]string{"app": "till"},
				Ends: map[string]End{"default/red": end("", "192.0.2.10", "2001:db8::10")}, Ports: port("web", 80),
			},
			{
				Namespace: "default", Name: "guest", Labels: map[string]string{"app": "till"},
				Ends: map[string]End{"default/red": end("02:00:00:00:00:09")}, Ports: port("web", 81),
			},
			{
				Namespace: "default", Name: "elsewhere", Labels: map[string]string{"app": "till"},
				Ends: map[string]End{"other/green": end("", "198.51.100.1")},
			},
			{
				Namespace: "shop", Name: "till", Labels: map[string]string{"app": "till"},
				Ends: map[string]End{
					"default/red":  end("", "192.0.2.20"),
					"default/blue": end("", "203.0.113.20"),
				}, Ports: port("web", 80),
			},
			{
				Namespace: "lab", Name: "probe", Labels: map[string]string{"app": "probe"},
				Ends: map[string]End{"default/red": end("", "192.0.2.30")},
			},
			{
				Namespace: "unseen", Name: "till", Labels: map[string]string{"app": "till"},
				Ends: map[string]End{"default/red": end("", "192.0.2.40")},
			},
		},
	}
}

// What policies mean for a guest.
func TestCompile(t *testing.T) {
	for name, spec := range map[string]string{
		"deny":                 `{podSelector: {}}`,
		"deny-egress":          `{podSelector: {}, policyTypes: [Egress]}`,
		"deny-both":            `{podSelector: {}, policyTypes: [Ingress, Egress]}`,
		"egress-by-rules":      `{podSelector: {}, egress: [{}]}`,
		"not-selected":         `{podSelector: {matchLabels: {app: other}}, ingress: [{}]}`,
		"anybody":              `{podSelector: {matchLabels: {app: site}}, ingress: [{}]}`,
		"nobody":               `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: x}}}]}]}`,
		"pods":                 `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: till}}}]}]}`,
		"namespaces":           `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`,
		"all-namespaces":       `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`,
		"pods-of-namespaces":   `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: till}}}]}]}`,
		"pods-or-namespaces":   `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {}}]}]}`,
		"block":                `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.7/24, except: [192.0.2.128/25]}}, {ipBlock: {cidr: '2001:db8::/64'}}]}]}`,
		"ports":                `{podSelector: {}, ingress: [{ports: [{port: 80}, {port: 53, protocol: UDP}, {protocol: SCTP}, {port: 8000, endPort: 8080}]}]}`,
		"named-port":           `{podSelector: {}, ingress: [{ports: [{port: web}]}]}`,
		"named-port-of-nobody": `{podSelector: {}, ingress: [{ports: [{port: mail}]}]}`,
		"named-ports-of-peers": `{podSelector: {}, egress: [{to: [{namespaceSelector: {}}], ports: [{port: web}, {port: 443}]}]}`,
		"named-ports-of-all":   `{podSelector: {}, egress: [{ports: [{port: web}]}]}`,
		"named-port-of-block":  `{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: web}]}]}`,
		"wrong":                `{podSelector: {}, policyTypes: [ingress], ingress: [{from: [{}]}, {from: [{ipBlock: {cidr: 010.0.0.0/8}}, {ipBlock: {cidr: 10.0.0.0/8, except: ['fd00::/8']}}, {ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}, {ports: [{port: 80, endPort: 70}, {endPort: 7}, {port: web, endPort: 8}, {port: 70000}, {protocol: ICMP}, {port: 22}]}]}`,
		"wrong-selector":       `{podSelector: {matchExpressions: [{key: a, operator: Nothing}]}, ingress: [{}]}`,
		"unreadable":           `{podSelector: {}, ingress: all}`,
	} {
		t.Run(name, func(t *testing.T) {
			rules, _ := Compile(input(policy(t, "p", spec)))
			if got := rules["green"]; got.Network != "other/green" || got.Policies != nil {
				t.Errorf("of another network: %+v", got)
			}
			got, err := json.MarshalIndent(rules["red"], "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
				t.Errorf("%s\n%s", spec, diff)
			}
			decoded, err := Decode(Encode(rules))
			if err != nil || Encode(decoded) != Encode(rules) {
				t.Errorf("read again it is %+v, %v", decoded, err)
			}
		})
	}
}

// Policies are those of the guest's namespace with the annotation, by name; peers matter when one of them selects pods.
func TestCompileChooses(t *testing.T) {
	plain := policy(t, "b", "{podSelector: {}}")
	selects := policy(t, "a", "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}")
	foreign, without := plain, plain
	foreign.Namespace = "shop"
	foreign.Annotations = map[string]string{AnnotationFor: "default/red"}
	without.Annotations = nil
	unselected := policy(t, "c", "{podSelector: {matchLabels: {a: b}}, ingress: [{from: [{podSelector: {}}]}]}")
	for name, c := range map[string]struct {
		policies []MultiNetworkPolicy
		want     string
		selects  bool
	}{
		"none":        {nil, "", false},
		"two":         {[]MultiNetworkPolicy{plain, selects}, "a b", true},
		"no selector": {[]MultiNetworkPolicy{plain, unselected}, "b", false},
		"others'":     {[]MultiNetworkPolicy{foreign, without}, "", false},
	} {
		rules, selects := Compile(input(c.policies...))
		var names []string
		for _, p := range rules["red"].Policies {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != c.want || (len(selects) > 0) != c.selects || len(rules) != 2 {
			t.Errorf("%s: %s, selects %v", name, got, selects)
		}
	}
}

func TestNetworks(t *testing.T) {
	p := policy(t, "p", "{}")
	p.Annotations[AnnotationFor] = " red,, other/blue ,"
	if got := strings.Join(p.Networks(), " "); got != "default/red other/blue" {
		t.Error(got)
	}
}

// A pod's word counts for addresses of single hosts alone, and for so many.
func TestEndsOf(t *testing.T) {
	got := EndsOf(map[string]string{"k8s.v1.cni.cncf.io/network-status": `[{"name":"cbr0","ips":["10.0.0.1"]},
		{"name":"default/red","ips":["192.0.2.1","192.0.2.1","0.0.0.0","255.255.255.255","224.0.0.1","127.0.0.1","fe80::1",
		"::ffff:192.0.2.3","2001:db8::1%eth0","192.0.2.0/24","x","2001:db8::1"],"mac":"02:00:00:00:00:01"},
		{"name":"default/red","ips":["192.0.2.2"]},{"ips":["192.0.2.9"]}]`})
	want := map[string]End{"cbr0": end("", "10.0.0.1"), "default/red": end("", "192.0.2.1", "2001:db8::1", "192.0.2.2")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	many := `[{"name":"a/b","ips":["192.0.2.0"`
	for i := range 100 {
		many += `,"192.0.2.` + string(rune('0'+i/10)) + string(rune('0'+i%10)) + `"`
	}
	if got := EndsOf(map[string]string{"k8s.v1.cni.cncf.io/network-status": many + "]}]"}); len(got["a/b"].Addresses) !=
		maxAddresses {
		t.Errorf("%d addresses", len(got["a/b"].Addresses))
	}
	networks := `[{"name":"n0"}`
	for i := range 100 {
		networks += fmt.Sprintf(`,{"name":"n%d","ips":["192.0.2.%d"],"junk":"%s"}`, i, i, strings.Repeat("x", 1000))
	}
	long := map[string]string{"k8s.v1.cni.cncf.io/network-status": networks + "]"}
	slim := Slim(long)
	again := EndsOf(map[string]string{"k8s.v1.cni.cncf.io/network-status": slim})
	if diff := cmp.Diff(EndsOf(long), again, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" ||
		len(again) != maxEnds || len(slim) > 4096 {
		t.Errorf("%d networks in %d bytes: %s", len(again), len(slim), diff)
	}
	if got := Slim(map[string]string{"k8s.v1.cni.cncf.io/network-status": "x"}); got != "" {
		t.Errorf("of what cannot be read: %s", got)
	}
}

func TestOn(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	multus := func(name string) v1.NetworkSource {
		return v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}
	}
	vmi.Spec.Networks = []v1.Network{
		{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}},
		{Name: "red", NetworkSource: multus("red-net")},
		{Name: "blue", NetworkSource: multus("other/blue-net")},
		{Name: "gone", NetworkSource: multus("red-net")},
		{Name: "card", NetworkSource: multus("red-net")},
	}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{
		{Name: "default"},
		{Name: "red"},
		{Name: "blue"},
		{Name: "gone", State: v1.InterfaceStateAbsent},
		{Name: "card", InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}},
	}
	want := map[string]string{"red": "default/red-net", "blue": "other/blue-net", "gone": "default/red-net"}
	if diff := cmp.Diff(want, On(vmi)); diff != "" {
		t.Error(diff)
	}
}

// A guest stays behind the policies of the network that its pod is on, also where its VMI names another one.
func TestNetworksOfPods(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	multus := func(name string) v1.NetworkSource {
		return v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}
	}
	vmi.Spec.Networks = []v1.Network{
		{Name: "red", NetworkSource: multus("blue")}, {Name: "x", NetworkSource: multus("x")},
	}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "red"}, {Name: "x"}}
	pod := func(definition string) map[string]string {
		return map[string]string{network.AnnotationNetworks: fmt.Sprintf(
			`[{"name":%q,"namespace":"default","interface":%q}]`, definition, network.LinkOf(vmi.Spec.Networks[0]))}
	}
	for _, c := range []struct {
		pods []map[string]string
		want string
	}{
		{nil, "map[red:[default/blue] x:[default/x]]"},
		{[]map[string]string{pod("red"), pod("blue")}, "map[red:[default/blue default/red] x:[default/x]]"},
		{[]map[string]string{pod("red"), pod("red")}, "map[red:[default/blue default/red] x:[default/x]]"},
		{[]map[string]string{{network.AnnotationNetworks: "x"}}, "map[red:[default/blue] x:[default/x]]"},
	} {
		if got := fmt.Sprint(Networks(vmi, c.pods...)); got != c.want {
			t.Errorf("%v: %s, want %s", c.pods, got, c.want)
		}
	}
	in := input(MultiNetworkPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "p", Annotations: map[string]string{AnnotationFor: "red"},
	}, Spec: json.RawMessage(`{}`)})
	in.Interfaces = map[string][]string{"red": {"default/blue", "default/red"}}
	rules, _ := Compile(in)
	here, known := rules.On("red", "default/red")
	if ingress, _ := here.Closed(); !known || !ingress {
		t.Errorf("on its way to blue: %+v", rules)
	}
	if there, known := rules.On("red", "default/blue"); !known || len(there.Policies) > 0 {
		t.Errorf("on blue: %+v", there)
	}
	if ingress, egress := Unknown("default/x").Closed(); !ingress || !egress {
		t.Error("what nobody knows passes")
	}
}

// Rules that are too many close what they are for, and say so.
func TestTooMany(t *testing.T) {
	rule := Rule{}
	for i := range 20000 {
		rule.Addresses = append(rule.Addresses, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	rules := Rules{"red": {Network: "default/red", Policies: []Policy{
		{Name: "a", Ingress: &Direction{Rules: []Rule{rule}}},
		{Name: "b", Egress: &Direction{Rules: []Rule{{Any: true}}}},
	}}}
	text := Encode(rules)
	got, err := Decode(text)
	if err != nil || len(text) > 2000 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	in, out := got["red"].Closed()
	a, b := got["red"].Policies[0], got["red"].Policies[1]
	if !in || !out || len(a.Ingress.Rules)+len(b.Egress.Rules) > 0 || a.Egress != nil || len(a.Wrong) != 1 {
		t.Errorf("%s", text)
	}
	if len(rules["red"].Policies[0].Ingress.Rules) != 1 {
		t.Error("the rules were changed")
	}
}

// So many policies that their names alone are too many close what they are for all the same.
func TestTooManyPolicies(t *testing.T) {
	rules := Rules{}
	for _, nic := range []string{"red", "blue"} {
		of := Interface{Network: "default/" + nic, Others: []Interface{{Network: "default/before"}}}
		for i := range 600 {
			p := Policy{Name: fmt.Sprintf("%s%d", strings.Repeat("p", 200), i)}
			p.Ingress = &Direction{Rules: []Rule{{Any: true}}}
			of.Policies, of.Others[0].Policies = append(of.Policies, p), append(of.Others[0].Policies, p)
		}
		rules[nic] = of
	}
	text := Encode(rules)
	got, err := Decode(text)
	if err != nil || len(text) > network.MaxPolicies {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	for _, nic := range []string{"red", "blue"} {
		for _, on := range []string{"default/" + nic, "default/before"} {
			here, known := got.On(nic, on)
			in, out := here.Closed()
			if !known || !in || out || len(here.Policies) != 1 || len(here.Policies[0].Ingress.Rules) > 0 ||
				len(here.Policies[0].Wrong) != 1 {
				t.Errorf("%s on %s: %+v", nic, on, here)
			}
		}
	}
}

// FuzzDecode reads the annotation. What it takes can be made rules of nftables.
func FuzzDecode(f *testing.F) {
	f.Add(`{"red":{"network":"a/b","policies":[{"name":"p","ingress":{"rules":[{"addresses":["192.0.2.1"],"macs":["02:00:00:00:00:01"],"blocks":[{"cidr":"::/0","except":["fd00::/8"]}],"ports":[{"protocol":"TCP","first":1,"last":2}]}]}}]}}`)
	f.Add(`{"red":{"policies":[{"ingress":{"rules":[{"addresses":["fe80::1%a"]}]}}]}}`)
	f.Add(`{"red":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Decode(text)
		if err != nil {
			return
		}
		again, err := Decode(Encode(rules))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if a, b := Encode(rules), Encode(again); a != b {
			t.Errorf("%s is read as %s", a, b)
		}
	})
}

// FuzzSpec reads a policy's spec, which its definition may not check. One that cannot be read leaves nothing open.
func FuzzSpec(f *testing.F) {
	f.Add(`{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8"}}],"ports":[{"port":"web"}]}]}`)
	f.Add(`{"podSelector":{"matchExpressions":[{"key":"a","operator":"x"}]}}`)
	f.Add(`{"policyTypes":["Egress"],"egress":[{"to":[{"namespaceSelector":{}}],"ports":[{"port":1,"endPort":2}]}]}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, spec string) {
		p := MultiNetworkPolicy{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "p", Annotations: map[string]string{AnnotationFor: "red"},
		}, Spec: json.RawMessage(spec)}
		rules, _ := Compile(input(p))
		if _, err := Decode(Encode(rules)); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		if _, err := p.Parse(); err != nil {
			if in, out := rules["red"].Closed(); !in || !out {
				t.Errorf("%s leaves open what it may close", spec)
			}
		}
	})
}
