package virtapi

import (
	"fmt"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestExpands(t *testing.T) {
	matched := func(revision string) *v1.VirtualMachine {
		vm := &v1.VirtualMachine{}
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "u1", RevisionName: revision}
		return vm
	}
	for name, tc := range map[string]struct {
		vm, old *v1.VirtualMachine
		policy  v1.InstancetypeReferencePolicy
		want    bool
	}{
		"reference":             {matched(""), nil, "", false},
		"expand":                {matched(""), nil, v1.Expand, true},
		"expand, nothing to":    {&v1.VirtualMachine{}, nil, v1.ExpandAll, false},
		"expand, of a revision": {matched("r"), nil, v1.Expand, false},
		"expand, there before":  {matched(""), matched(""), v1.Expand, false},
		"all, of a revision":    {matched("r"), nil, v1.ExpandAll, true},
		"all, there before":     {matched(""), matched(""), v1.ExpandAll, true},
	} {
		if got := expands(tc.vm, tc.old, tc.policy); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// An instance type is written into the VM; one that does not fit stays for the validation to refuse.
func TestExpand(t *testing.T) {
	for domain, want := range map[string]bool{"": true, "cpu: {cores: 2}": false} {
		vm := &v1.VirtualMachine{}
		object := fmt.Sprintf(referring, "instancetype: {name: u1}\n  preference: {name: linux}", domain, "plain")
		if err := yaml.Unmarshal([]byte(object), vm); err != nil {
			t.Fatal(err)
		}
		if err := hooks.expand(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
		cpu := vm.Spec.Template.Spec.Domain.CPU
		if expanded := vm.Spec.Instancetype == nil && vm.Spec.Preference == nil && cpu != nil &&
			cpu.Sockets*max(cpu.Cores, 1) == 2; expanded != want {
			t.Errorf("%s: instance type %v, cpu %+v", domain, vm.Spec.Instancetype, cpu)
		}
	}
}
