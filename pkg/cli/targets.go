package cli

import (
	"strings"
)

// Target is a machine named on the command line.
type Target struct {
	Namespace, Name string
	// Instance is whether the user named the VirtualMachineInstance rather than the VirtualMachine.
	Instance bool
}

// ParseTarget reads NAME, vm/NAME or vmi/NAME, and KubeVirt's NAME.NAMESPACE form only where a slash says the kind
// (`vmi/NAME/NAMESPACE`); namespace is used when the argument names none.
func ParseTarget(arg, namespace string) (Target, error) {
	t := Target{Namespace: namespace, Name: arg}
	if kind, rest, ok := strings.Cut(arg, "/"); ok {
		switch strings.ToLower(kind) {
		case "vm", "vms", "virtualmachine", "virtualmachines", "virtualmachine.kubevirt.io", "virtualmachines.kubevirt.io":
		case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances", "virtualmachineinstance.kubevirt.io", "virtualmachineinstances.kubevirt.io":
			t.Instance = true
		default:
			return t, UsageErrorf("%q: the kind must be vm or vmi", arg)
		}
		t.Name = rest
		if name, ns, ok := strings.Cut(rest, "/"); ok {
			t.Name, t.Namespace = name, ns
		}
	}
	if t.Name == "" || t.Namespace == "" || strings.Contains(t.Namespace, "/") {
		return t, UsageErrorf("%q is not NAME, vm/NAME or vmi/NAME", arg)
	}
	return t, nil
}
