package instancetype

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// Two revisions are the same by the specs that they keep.
func TestSameRevision(t *testing.T) {
	vm := &v1.VirtualMachine{}
	capture := func(change func(*v1beta1.VirtualMachineInstancetype)) *Object {
		it := &v1beta1.VirtualMachineInstancetype{}
		it.Name, it.UID, it.Generation = "small", "1", 1
		it.Spec.CPU.Guest = 1
		change(it)
		return &Object{Role: Instancetype, Kind: "VirtualMachineInstancetype", Name: it.Name, object: it}
	}
	first, err := Capture(vm, capture(func(*v1beta1.VirtualMachineInstancetype) {}))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*v1beta1.VirtualMachineInstancetype)
		want   bool
	}{
		"as it was": {func(*v1beta1.VirtualMachineInstancetype) {}, true},
		"labelled": {
			func(it *v1beta1.VirtualMachineInstancetype) { it.Labels = map[string]string{"a": "b"} }, true,
		},
		"another size": {func(it *v1beta1.VirtualMachineInstancetype) { it.Spec.CPU.Guest = 2 }, false},
	} {
		second, err := Capture(vm, capture(tt.change))
		if err != nil {
			t.Fatal(err)
		}
		if got := SameRevision(second, first); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	foreign := first.DeepCopy()
	foreign.Data.Raw = json.RawMessage(`{"kind":"Pod"}`)
	if SameRevision(foreign, first) {
		t.Error("a Pod passes for an instance type")
	}
}

func TestRevisionNames(t *testing.T) {
	instance := func(name string) *v1.InstancetypeMatcher { return &v1.InstancetypeMatcher{RevisionName: name} }
	preference := func(name string) *v1.PreferenceMatcher { return &v1.PreferenceMatcher{RevisionName: name} }
	for _, test := range []struct {
		spec          v1.VirtualMachineSpec
		names, others string
	}{
		{v1.VirtualMachineSpec{}, "[]", "[]"},
		{v1.VirtualMachineSpec{Instancetype: instance(""), Preference: preference("")}, "[]", "[]"},
		{v1.VirtualMachineSpec{Instancetype: instance("i")}, "[i]", "[my-i]"},
		{v1.VirtualMachineSpec{Instancetype: instance(""), Preference: preference("p")}, "[p]", "[my-p]"},
		{v1.VirtualMachineSpec{Instancetype: instance("i"), Preference: preference("p")}, "[i p]", "[my-i my-p]"},
	} {
		if got := fmt.Sprint(RevisionNames(&test.spec)); got != test.names {
			t.Errorf("%s, want %s", got, test.names)
		}
		RenameRevisions(&test.spec, func(name string) string { return "my-" + name })
		if got := fmt.Sprint(RevisionNames(&test.spec)); got != test.others {
			t.Errorf("renamed %s, want %s", got, test.others)
		}
	}
}
