package virtapi

import (
	"strings"
	"testing"
)

func TestValidateExport(t *testing.T) {
	t.Parallel()
	const head = `{"metadata":{"namespace":"ns","name":"e"},"spec":{"source":`
	source := func(group, kind, name string) string {
		return head + `{"apiGroup":"` + group + `","kind":"` + kind + `","name":"` + name + `"}}}`
	}
	with := func(more string) string {
		return head + `{"apiGroup":"","kind":"PersistentVolumeClaim","name":"disk"},` + more + `}}`
	}
	vm := source("kubevirt.io", "VirtualMachine", "vm")
	for name, tc := range map[string]struct{ object, old, want string }{
		"a VM":              {vm, "", ""},
		"a snapshot":        {source("snapshot.kubevirt.io", "VirtualMachineSnapshot", "s"), "", ""},
		"a claim":           {source("", "PersistentVolumeClaim", "c"), "", ""},
		"without group":     {head + `{"kind":"PersistentVolumeClaim","name":"c"}}}`, "", ""},
		"a Pod":             {source("", "Pod", "p"), "", "spec.source.kind: invalid kind"},
		"no VM's name":      {source("kubevirt.io", "VirtualMachine", ""), "", "Virtual Machine name must"},
		"no claim":          {source("", "PersistentVolumeClaim", ""), "", "PVC name must not be empty"},
		"no snapshot":       {source("snapshot.kubevirt.io", "VirtualMachineSnapshot", ""), "", "VMSnapshot name must"},
		"a VM's group":      {source("x", "VirtualMachine", "vm"), "", "VM API group must be kubevirt.io"},
		"a claim's":         {source("v1", "PersistentVolumeClaim", "c"), "", "PVC API group must be missing or blank"},
		"a snapshot's":      {source("", "VirtualMachineSnapshot", "c"), "", "VMSnapshot API group must be"},
		"a path":            {source("", "PersistentVolumeClaim", "../c"), "", "spec.source.name"},
		"lifetime":          {with(`"ttlDuration":"1h"`), "", ""},
		"no lifetime":       {with(`"ttlDuration":"0s"`), "", "spec.ttlDuration: must be more than 0"},
		"past":              {with(`"ttlDuration":"-1h"`), "", "spec.ttlDuration: must be more than 0"},
		"a token":           {with(`"tokenSecretRef":"mine"`), "", ""},
		"no token":          {with(`"tokenSecretRef":"not/mine"`), "", "spec.tokenSecretRef"},
		"unknown":           {with(`"format":"qcow2"`), "", "spec.format"},
		"the same":          {vm, vm, ""},
		"another":           {source("kubevirt.io", "VirtualMachine", "b"), vm, "spec in immutable after creation"},
		"labels only":       {strings.Replace(vm, `"name":"e"`, `"name":"e","labels":{"a":"b"}`, 1), vm, ""},
		"what is no object": {`{"metadata":{"name":"e"},"spec":{"source":3}}`, "", "cannot be read"},
	} {
		got := ask(t, "/validate/virtualmachineexports", "alice", tc.object, tc.old)
		message := ""
		if got.Result != nil {
			message = got.Result.Message
			if got.Result.Details != nil {
				for _, cause := range got.Result.Details.Causes {
					message += "\n" + cause.Field + ": " + cause.Message
				}
			}
		}
		if got.Allowed != (tc.want == "") || !strings.Contains(message, tc.want) {
			t.Errorf("%s: allowed %t, %s", name, got.Allowed, message)
		}
	}
}
