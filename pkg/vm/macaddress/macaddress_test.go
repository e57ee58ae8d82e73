package macaddress

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// vmOf has a VM shop/web with the UID u, and what a test adds to its metadata and template.
func vmOf(t *testing.T, metadata, template string) *v1.VirtualMachine {
	return read[v1.VirtualMachine](t, fmt.Sprintf(
		"metadata: {namespace: shop, name: web, uid: u, %s}\nspec: {template: {spec: {%s}}}", metadata, template))
}

const three = `domain: {devices: {interfaces: [{name: default, masquerade: {}}, {name: red, bridge: {}}, {name: mine, bridge: {}, macAddress: 02-00-00-00-00-0A}]}},
networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}, {name: mine, multus: {networkName: other/net}}]`

// The record of a VM, in each situation of its life; testdata/wanted.golden.
func TestWanted(t *testing.T) {
	recorded := func(vm, macs string) string {
		return `annotations: {"` + Annotation + `": '{"vm":"` + vm + `","interfaces":{` + macs + `}}'}`
	}
	const running = `metadata: {namespace: shop, name: web}
spec: {domain: {devices: {interfaces: [{name: default, masquerade: {}}, {name: red, bridge: {}}]}}, networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}]}
status: {interfaces: [{name: default, mac: "02:11:11:11:11:11"}, {name: red, mac: "02:AA:22:22:22:22"}]}`
	var golden strings.Builder
	for _, tc := range []struct{ name, metadata, template, vmi string }{
		{"new", "", three, ""},
		{"names no interface", "", "", ""},
		{"wants none", "", "domain: {devices: {autoattachPodInterface: false}}", ""},
		{
			"bridge on the pod network", "",
			"domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, networks: [{name: a, pod: {}}]", "",
		},
		{
			"first network of Multus", "",
			"domain: {devices: {interfaces: [{name: a, bridge: {}}]}}, " +
				"networks: [{name: a, multus: {networkName: x, default: true}}]",
			"",
		},
		{"stopped", recorded("shop/web", `"default":"02:33:33:33:33:33"`), three, ""},
		{"copied to another name", recorded("shop/old", `"default":"02:33:33:33:33:33"`), three, ""},
		{"copied to another namespace", recorded("lab/web", `"default":"02:33:33:33:33:33"`), three, ""},
		{"unreadable", recorded("shop/web", `"default":"x"`), three, ""},
		{"an interface is gone", recorded("shop/web", `"gone":"02:33:33:33:33:33"`), three, ""},
		{"runs, and was never recorded", "", three, running},
		{
			"runs with others than recorded",
			recorded("shop/web", `"default":"02:33:33:33:33:33","red":"02:44:44:44:44:44"`), three, running,
		},
		{
			"runs with one that its spec had", recorded("shop/web", `"default":"02:33:33:33:33:33"`), three,
			strings.Replace(running, "masquerade: {}", `masquerade: {}, macAddress: "02:11:11:11:11:11"`, 1),
		},
		{
			"unplugged", recorded("shop/web", `"red":"02:44:44:44:44:44"`), three,
			strings.Replace(running, "name: red, bridge: {}", "name: red, bridge: {}, state: absent", 1),
		},
		{"starts", recorded("shop/web", `"default":"02:33:33:33:33:33"`), three, strings.Split(running, "\nstatus")[0]},
	} {
		vm, vmi := vmOf(t, tc.metadata, tc.template), (*v1.VirtualMachineInstance)(nil)
		if tc.vmi != "" {
			vmi = read[v1.VirtualMachineInstance](t, tc.vmi)
		}
		data, err := json.Marshal(Wanted(vm, vmi))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&golden, "%s\n  %s\n", tc.name, data)
	}
	path := filepath.Join("testdata", "wanted.golden")
	if *update {
		if err := os.WriteFile(path, []byte(golden.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), golden.String()); diff != "" {
		t.Errorf("-want +got, -update to accept:\n%s", diff)
	}
	if Wanted(&v1.VirtualMachine{}, nil) != nil {
		t.Error("a VM without a template has addresses")
	}
}

func TestStable(t *testing.T) {
	a, b, c := Stable("uid", "default"), Stable("uid", "other"), Stable("other", "default")
	if a == b || a == c || a != Stable("uid", "default") || Check(a) != nil || !strings.HasPrefix(a, "02:") {
		t.Errorf("got %s, %s and %s", a, b, c)
	}
}

// What is written is read again, by the VM that it was written for.
func TestRecord(t *testing.T) {
	macs := map[string]string{"default": "02:00:00:00:00:01"}
	text, err := Encode("shop", "web", macs)
	if err != nil {
		t.Fatal(err)
	}
	vm := vmOf(t, "", "")
	if got := Recorded(vm); got != nil {
		t.Errorf("without: %v", got)
	}
	vm.Annotations = map[string]string{Annotation: text}
	if diff := cmp.Diff(macs, Recorded(vm)); diff != "" {
		t.Error(diff)
	}
	vm.Name = "copy"
	if got := Recorded(vm); got != nil {
		t.Errorf("a copy has %v", got)
	}
	for _, from := range []string{"shop/web", ""} {
		vm := vm.DeepCopy()
		if err := Move(vm, from); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(macs, Recorded(vm)); diff != "" {
			t.Errorf("moved from %q: %s", from, diff)
		}
	}
	if err := Move(vm, "shop/other"); err != nil || vm.Annotations[Annotation] != "" {
		t.Errorf("another's: %v, %v", err, vm.Annotations)
	}
	vm.Annotations[Annotation] = "{"
	if err := Move(vm, ""); err != nil || vm.Annotations[Annotation] != "" {
		t.Errorf("unreadable: %v, %v", err, vm.Annotations)
	}
	for text, want := range map[string]string{
		"x":                        "is not " + example,
		`{"interfaces":{"a":"b"}}`: `interface a: "b" is not an Ethernet address`,
		`{"interfaces":{"a":"01:00:5e:00:00:01"}}`: "the second digit must be even",
	} {
		if _, err := Decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOfInterface(t *testing.T) {
	vmi := read[v1.VirtualMachineInstance](t, `metadata: {namespace: shop, name: web, annotations: {"`+Annotation+
		`": '{"vm":"shop/web","interfaces":{"a":"02:00:00:00:00:01","b":"02:00:00:00:00:02"}}'}}`)
	for name, tc := range map[string]struct {
		nic  v1.Interface
		want string
	}{
		"recorded":     {v1.Interface{Name: "a"}, "02:00:00:00:00:01"},
		"its spec's":   {v1.Interface{Name: "b", MacAddress: "02:00:00:00:00:09"}, "02:00:00:00:00:09"},
		"not recorded": {v1.Interface{Name: "c"}, ""},
	} {
		if got := OfInterface(vmi, &tc.nic); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestObstacle(t *testing.T) {
	pod := v1.DefaultPodNetwork()
	red := &v1.Network{Name: "a", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}}}
	first := red.DeepCopy()
	first.Multus.Default = true
	for name, tc := range map[string]struct {
		nic  string
		n    *v1.Network
		want string
	}{
		"masquerade":          {"masquerade: {}", pod, ""},
		"default":             {"state: up", pod, ""},
		"bridge":              {"bridge: {}", pod, "bridge: {} another MAC at each start"},
		"bridge with one":     {`bridge: {}, macAddress: "02:00:00:00:00:01"`, pod, ""},
		"bridge on Multus'":   {"bridge: {}", red, ""},
		"sriov":               {"sriov: {}", red, ""},
		"Multus' as first":    {"bridge: {}", first, "bridge: {} another MAC"},
		"plugin":              {"binding: {name: l2}", pod, "binding l2 another MAC"},
		"plugin on Multus'":   {"binding: {name: l2}", red, ""},
		"of no network (yet)": {"bridge: {}", nil, "another MAC"},
	} {
		got := Obstacle(read[v1.Interface](t, "{name: a, "+tc.nic+"}"), tc.n)
		if got != tc.want && (tc.want == "" || !strings.Contains(got, tc.want)) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
