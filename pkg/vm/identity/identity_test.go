package identity

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestName(t *testing.T) {
	for known, want := range map[string]string{
		"": "vm", "old": "old", "old.shop": "old.shop", "../../etc/x": "vm", "a/b": "vm", "..": "vm", "Old": "vm",
	} {
		vmi := &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Name: "vm", Annotations: map[string]string{KnownAs: known}},
		}
		if got := Name(vmi); got != want {
			t.Errorf("%q: %q, want %q", known, got, want)
		}
	}
	if got := Name(&v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}); got != "vm" {
		t.Errorf("without annotations: %q", got)
	}
}

// The UUID is KubeVirt's for the name.
func TestUUID(t *testing.T) {
	if got := UUID("testvm"); got != "5a9fc181-957e-5c32-9e5a-2de5e9673531" {
		t.Errorf("%s", got)
	}
}

func TestRenaming(t *testing.T) {
	want := Renaming{Name: "old", UID: "u", Of: "hash", RunStrategy: v1.RunStrategyManual}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	vm := &v1.VirtualMachine{}
	if got, err := RenamingOf(vm); got != nil || err != nil {
		t.Errorf("without: %v, %v", got, err)
	}
	vm.Annotations = map[string]string{RenamingFrom: text}
	if got, err := RenamingOf(vm); err != nil || *got != want {
		t.Errorf("%+v, %v", got, err)
	}
	vm.Annotations[RenamingFrom] = "old"
	if got, err := RenamingOf(vm); got == nil || err == nil {
		t.Errorf("no mark: %v, %v", got, err)
	}
}

func TestHost(t *testing.T) {
	for _, tc := range []struct{ name, hostname, want string }{
		{"demo", "", "demo"},
		{"demo", "other", "other"},
		{"a.b.c", "", "a"},
		{strings.Repeat("a", 62) + "-bcd", "", strings.Repeat("a", 62)},
	} {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: tc.name}}
		vmi.Spec.Hostname = tc.hostname
		if got := Host(vmi); got != tc.want {
			t.Errorf("%s/%s: %s, want %s", tc.name, tc.hostname, got, tc.want)
		}
	}
}
