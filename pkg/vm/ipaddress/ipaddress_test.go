package ipaddress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

const two = `domain: {devices: {interfaces: [{name: default, masquerade: {}}, {name: red, bridge: {}}]}},
networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}]`

// vmOf has a VM shop/web with two interfaces, the second on network shop/red-net, and these annotations, of its own and
// of its template.
func vmOf(t *testing.T, record, wish string) *v1.VirtualMachine {
	vm := read[v1.VirtualMachine](t, "metadata: {namespace: shop, name: web}\nspec: {template: {spec: {"+two+"}}}")
	vm.Annotations, vm.Spec.Template.ObjectMeta.Annotations = map[string]string{}, map[string]string{}
	if record != "" {
		vm.Annotations[Annotation] = record
	}
	if wish != "" {
		vm.Spec.Template.ObjectMeta.Annotations[Wish] = wish
	}
	return vm
}

// vmiOf is the instance of vmOf.
func vmiOf(t *testing.T, record, wish string) *v1.VirtualMachineInstance {
	vm := vmOf(t, record, wish)
	vmi := &v1.VirtualMachineInstance{ObjectMeta: vm.ObjectMeta, Spec: vm.Spec.Template.Spec}
	if wish != "" {
		vmi.Annotations[Wish] = wish
	}
	return vmi
}

func recordOf(vm, network, addresses string) string {
	return fmt.Sprintf(`{"vm":%q,"interfaces":{"red":{"network":%q,"addresses":[%s]}}}`, vm, network, addresses)
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7":       "",
		"192.0.2.7/24":    "",
		"192.0.2.7/32":    "",
		"192.0.2.6/31":    "",
		"2001:db8::7":     "",
		"2001:DB8::7/64":  "",
		"fd00::1/127":     "",
		"":                "is not an IP address",
		"x":               "is not an IP address",
		"192.0.2":         "is not an IP address",
		"192.0.2.7/":      "has no length of a prefix",
		"192.0.2.7/33":    "has no length of a prefix",
		"fe80::1%eth0":    "is not an IP address",
		"::ffff:1.2.3.4":  "is not an IP address",
		"0.0.0.0":         "is not the address of one host",
		"127.0.0.1":       "is not the address of one host",
		"224.0.0.1":       "is not the address of one host",
		"fe80::1":         "is not the address of one host",
		"255.255.255.255": "is not the address of one host",
		"192.0.2.0/24":    "is the address of the network 192.0.2.0/24 itself",
		"192.0.2.255/24":  "is the broadcast address of the network 192.0.2.0/24",
		"2001:db8::/64":   "is the address of the network 2001:db8::/64 itself",
	} {
		got, err := Parse(text)
		switch {
		case want == "" && (err != nil || got.String() != strings.ToLower(text)):
			t.Errorf("%s: %s, %v", text, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// What is written is read again, by the VM that it was written for.
func TestRecord(t *testing.T) {
	given := map[string]Given{"red": {Network: "shop/red-net", Addresses: []string{"192.0.2.7"}}}
	text, err := Encode("shop", "web", given)
	if err != nil {
		t.Fatal(err)
	}
	vm := vmOf(t, text, "")
	if diff := cmp.Diff(given, Recorded(vm)); diff != "" {
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
		if diff := cmp.Diff(given, Recorded(vm)); diff != "" {
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
		"x": "is not " + example,
		recordOf("shop/web", "shop/red-net", `"x"`):                            `interface red: "x" is not an IP address`,
		recordOf("shop/web", "shop/red-net", `"192.0.2.7","192.0.2.7/24"`):     "192.0.2.7 is named twice",
		recordOf("shop/web", "shop/red-net", `"x"`+strings.Repeat(`,"x"`, 16)): "there are 17 addresses, and 16",
	} {
		if _, err := Decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWish(t *testing.T) {
	spec := &vmOf(t, "", "").Spec.Template.Spec
	for text, want := range map[string]string{
		"":                                   "",
		"{}":                                 "",
		`{"red":[]}`:                         "",
		`{"red":["192.0.2.7/24","fd00::7"]}`: "",
		`{"default":["192.0.2.7"]}`:          "",
		"x":                                  "is not " + exampleWish,
		`{"red":"192.0.2.7"}`:                "is not " + exampleWish,
		`{"red":["x"]}`:                      `interface red: "x" is not an IP address`,
		`{"blue":["192.0.2.7"]}`:             `no interface is named "blue"`,
	} {
		err := CheckWish("shop", Wish, text, spec)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for network, want := range map[string]string{
		"red-net":       `fd00::7 is wished for interface "again" and for interface "red"`,
		"shop/red-net":  `fd00::7 is wished for interface "again" and for interface "red"`,
		"other/red-net": "",
	} {
		twice := spec.DeepCopy()
		twice.Networks = append(twice.Networks, v1.Network{
			Name: "again", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: network}},
		})
		twice.Domain.Devices.Interfaces = append(twice.Domain.Devices.Interfaces, v1.Interface{Name: "again"})
		err := CheckWish("shop", Wish, `{"red":["fd00::7"],"again":["192.0.2.7","fd00::7/64"]}`, twice)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("twice on one network, %s: %v", network, err)
		}
	}
	wish := map[string][]Address{"red": {must(t, "192.0.2.7/24"), must(t, "fd00::7")}}
	text, err := EncodeWish(wish)
	if err != nil || text != `{"red":["192.0.2.7/24","fd00::7"]}` {
		t.Errorf("%s, %v", text, err)
	}
}

func must(t *testing.T, text string) Address {
	t.Helper()
	a, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A wish goes before what is recorded, in its family; a record of another network says nothing.
func TestOfInterface(t *testing.T) {
	both := recordOf("shop/web", "shop/red-net", `"192.0.2.7","fd00::7"`)
	for name, tc := range map[string]struct{ record, wish, want string }{
		"none":                  {"", "", "[]"},
		"recorded":              {both, "", "[192.0.2.7 fd00::7]"},
		"wished":                {"", `{"red":["192.0.2.9/24"]}`, "[192.0.2.9/24]"},
		"one family wished":     {both, `{"red":["192.0.2.9"]}`, "[192.0.2.9 fd00::7]"},
		"both families wished":  {both, `{"red":["192.0.2.9","fd00::9"]}`, "[192.0.2.9 fd00::9]"},
		"another network's":     {recordOf("shop/web", "shop/blue-net", `"192.0.2.7"`), "", "[]"},
		"another VM's":          {recordOf("shop/other", "shop/red-net", `"192.0.2.7"`), "", "[]"},
		"a wish of no sense":    {both, "x", "[192.0.2.7 fd00::7]"},
		"a wish of others only": {both, `{"default":["192.0.2.9"]}`, "[192.0.2.7 fd00::7]"},
	} {
		if got := fmt.Sprint(OfInterface(vmiOf(t, tc.record, tc.wish), "red", "shop/red-net")); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// A VM has what it is wished to have, and what is recorded; addresses of the pod network are no claims.
func TestClaims(t *testing.T) {
	record := recordOf("shop/web", "shop/red-net", `"192.0.2.7","fd00::7"`)
	vm := vmOf(t, record, `{"red":["192.0.2.9/24"],"default":["198.51.100.1"]}`)
	say := func(claims []Claim) (out []string) {
		for _, c := range claims {
			out = append(out, fmt.Sprintf("%s %s wished %v", c.Interface, c.Key(), c.Wished))
		}
		return out
	}
	want := []string{"red 192.0.2.9 shop/red-net wished true", "red fd00::7 shop/red-net wished false"}
	if diff := cmp.Diff(want, say(OfVM(vm))); diff != "" {
		t.Error(diff)
	}
	vmi := vmiOf(t, record, `{"red":["192.0.2.9/24"]}`)
	if diff := cmp.Diff(want, say(OfVMI(vmi))); diff != "" {
		t.Error(diff)
	}
	vmi.Spec.Domain.Devices.Interfaces[1].State = v1.InterfaceStateAbsent
	if got := OfVMI(vmi); len(got) > 0 || OfVM(&v1.VirtualMachine{}) != nil || len(OfVM(vmOf(t, "", ""))) > 0 {
		t.Errorf("unplugged: %+v", got)
	}
	claims := OfVM(vm)
	if got := Added(claims, claims[:1]); len(got) != 1 || got[0] != claims[1] {
		t.Errorf("%+v", got)
	}
	for i, want := range []string{"leave it out of the annotation " + Wish, "remove the annotation " + Annotation} {
		if got := claims[i].Taken("VM shop/db", "nic"); !strings.Contains(got,
			"is the IP address of VM shop/db, interface nic, on network shop/red-net; "+want) {
			t.Error(got)
		}
	}
}

// What is recorded, in each situation of a VM's life.
func TestWanted(t *testing.T) {
	old := recordOf("shop/web", "shop/red-net", `"192.0.2.7"`)
	other := recordOf("shop/web", "shop/blue-net", `"203.0.113.7"`)
	moves := func(vmi *v1.VirtualMachineInstance) *v1.VirtualMachineInstance {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
		return vmi
	}
	absent := vmiOf(t, old, "")
	absent.Spec.Domain.Devices.Interfaces[1].State = v1.InterfaceStateAbsent
	fresh := Got{Network: "shop/red-net", Kept: true, Addresses: []string{"192.0.2.9"}}
	blue := Got{Network: "shop/blue-net", Kept: true, Addresses: []string{"203.0.113.9"}}
	const none, seven = "map[]", "map[red:{shop/red-net [192.0.2.7]}]"
	const nine, blueNine = "map[red:{shop/red-net [192.0.2.9]}]", "map[red:{shop/blue-net [203.0.113.9]}]"
	for name, tc := range map[string]struct {
		record   string
		vmi      *v1.VirtualMachineInstance
		got      *Got
		held, vm string
	}{
		"new":                 {"", nil, nil, none, none},
		"stopped":             {old, nil, nil, none, seven},
		"has a pod since now": {"", vmiOf(t, "", ""), &fresh, nine, nine},
		"got another":         {old, vmiOf(t, old, ""), &fresh, nine, nine},
		"not reported yet": {
			old, vmiOf(t, old, ""), &Got{Network: fresh.Network, Kept: true}, seven, seven,
		},
		"its network keeps none now": {
			old, vmiOf(t, old, ""), &Got{Network: fresh.Network, Addresses: fresh.Addresses}, none, none,
		},
		"has moved":               {old, moves(vmiOf(t, old, "")), &fresh, seven, seven},
		"has moved, and had none": {"", moves(vmiOf(t, "", "")), &fresh, nine, nine},
		"reported is what is no address": {
			old, vmiOf(t, old, ""), &Got{Network: fresh.Network, Kept: true, Addresses: []string{"x"}}, seven, seven,
		},
		// The VM and its VMI are on red, and the pod is on blue still, or again.
		"its pod is on another network": {"", vmiOf(t, other, ""), &blue, blueNine, none},
		"its network was changed and changed back": {
			old, moves(vmiOf(t, old, "")), &blue, blueNine, seven,
		},
		"has moved to another network": {"", moves(vmiOf(t, other, "")), &fresh, nine, nine},
		"unplugged":                    {old, absent, &fresh, nine, nine},
		"not in its pod":               {old, vmiOf(t, old, ""), &Got{}, seven, seven},
		"recorded of another network":  {other, nil, nil, none, none},
		"copied":                       {recordOf("shop/other", "shop/red-net", `"192.0.2.7"`), nil, nil, none, none},
	} {
		var got func(*v1.Interface, *v1.Network) Got
		held := map[string]Given{}
		if tc.got != nil {
			got = func(*v1.Interface, *v1.Network) Got { return *tc.got }
			held = Held(tc.vmi, got)
		}
		if out := fmt.Sprint(held); out != tc.held {
			t.Errorf("%s: the VMI has %s, want %s", name, out, tc.held)
		}
		if out := fmt.Sprint(Wanted(vmOf(t, tc.record, ""), held, got)); out != tc.vm {
			t.Errorf("%s: the VM has %s, want %s", name, out, tc.vm)
		}
	}
	if Wanted(&v1.VirtualMachine{}, nil, nil) != nil {
		t.Error("a VM without a template has addresses")
	}
	a := map[string]Given{"red": {"n", []string{"1"}}}
	for other, want := range map[string]bool{"n 1": true, "n 2": false, "m 1": false, "": false} {
		network, address, _ := strings.Cut(other, " ")
		b := map[string]Given{"red": {network, []string{address}}}
		if other == "" {
			b = map[string]Given{"blue": a["red"]}
		}
		if Equal(a, b) != want || Equal(a, nil) {
			t.Errorf("%v and %v", a, b)
		}
	}
}
