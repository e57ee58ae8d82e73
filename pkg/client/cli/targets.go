package cli

import (
	"fmt"
	"slices"
	"strings"
)

// Target is a machine named on the command line.
type Target struct {
	Namespace, Name string
	// Instance is whether the user named the VirtualMachineInstance rather than the VirtualMachine.
	Instance bool
}

// KindOf reads a word for the kind: whether it is one, and that of the instance.
func KindOf(word string) (instance, ok bool) {
	switch strings.ToLower(word) {
	case "vm", "vms", "virtualmachine", "virtualmachines", "virtualmachine.kubevirt.io", "virtualmachines.kubevirt.io":
		return false, true
	case "vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances", "virtualmachineinstance.kubevirt.io",
		"virtualmachineinstances.kubevirt.io":
		return true, true
	}
	return false, false
}

// otherKinds are words for kinds that are no machines, as somebody types them who knows kubectl. Short ones that may
// well be the name of a machine are left out.
var otherKinds = []string{
	"pod", "node", "pvc", "persistentvolumeclaim", "secret", "configmap", "service", "deployment", "namespace",
	"datavolume", "migration", "vmim", "virtualmachineinstancemigration", "vmpool", "virtualmachinepool", "vmirs",
	"virtualmachineinstancereplicaset", "vmsnapshot", "virtualmachinesnapshot",
}

// elsewhere says where objects of a kind that is no machine's are listed, by the word for one of them; % is the
// program. Without a line here it is kubectl.
var elsewhere = map[string]string{
	"migration":                        "`kubectl get vmim` lists migrations, and `% dashboard` follows them",
	"vmim":                             "`kubectl get vmim` lists migrations, and `% dashboard` follows them",
	"virtualmachineinstancemigration":  "`kubectl get vmim` lists migrations, and `% dashboard` follows them",
	"snapshot":                         "`% snapshot list` lists snapshots",
	"vmsnapshot":                       "`% snapshot list` lists snapshots",
	"virtualmachinesnapshot":           "`% snapshot list` lists snapshots",
	"event":                            "`% events` lists events",
	"vmpool":                           "`% list vmpool` lists pools",
	"virtualmachinepool":               "`% list vmpool` lists pools",
	"vmirs":                            "`% list vmirs` lists replica sets",
	"virtualmachineinstancereplicaset": "`% list vmirs` lists replica sets",
}

// otherKind reads a word, in the singular or the plural, with its group or without, for a kind that is no machine's.
func otherKind(word string) (string, bool) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".")
	for _, one := range []string{word, strings.TrimSuffix(word, "s"), strings.TrimSuffix(word, "es")} {
		if elsewhere[one] != "" || slices.Contains(otherKinds, one) {
			return one, true
		}
	}
	return "", false
}

// Elsewhere returns where the objects of a kind are listed whose word may also be the name of a machine; empty for a
// word that is no kind.
func Elsewhere(program, word string) string {
	kind, ok := otherKind(word)
	switch {
	case !ok:
		return ""
	case elsewhere[kind] != "":
		return strings.ReplaceAll(elsewhere[kind], "% ", program+" ")
	}
	return fmt.Sprintf("`kubectl get %s` lists those", word)
}

// CheckKind returns a usage error if the first of several names is a word for a kind that is no machine's: "pause pod
// web" means one object, not two machines.
func CheckKind(names []string) error {
	if len(names) < 2 {
		return nil
	}
	word := strings.ToLower(names[0])
	if !slices.Contains(otherKinds, word) && !slices.Contains(otherKinds, strings.TrimSuffix(word, "s")) {
		return nil
	}
	return UsageErrorf("%q: the kind must be vm or vmi; a VM of that name is vm/%s", names[0], names[0])
}

// ParseTarget reads NAME, vm/NAME or vmi/NAME, and KubeVirt's NAME.NAMESPACE form only where a slash says the kind
// (`vmi/NAME/NAMESPACE`); namespace is used when the argument names none.
func ParseTarget(arg, namespace string) (Target, error) {
	t := Target{Namespace: namespace, Name: arg}
	if kind, rest, ok := strings.Cut(arg, "/"); ok {
		instance, known := KindOf(kind)
		if !known {
			return t, UsageErrorf("%q: the kind must be vm or vmi", arg)
		}
		t.Instance = instance
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

// ParseTargets reads the names of a command line. As in kubectl and in KubeVirt's `pause vmi NAME`, a first word that
// is a kind says that of the names which follow, and a kind that is no machine's is refused; a machine that has such a
// word for a name is vm/NAME there. A machine that is named twice is taken once.
func ParseTargets(args []string, namespace string) ([]Target, error) {
	instance := false
	if len(args) > 1 {
		if found, ok := KindOf(args[0]); ok {
			instance, args = found, args[1:]
		} else if err := CheckKind(args); err != nil {
			return nil, err
		}
	}
	var out []Target
	seen := map[Target]bool{}
	for _, arg := range args {
		t, err := ParseTarget(arg, namespace)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(arg, "/") {
			t.Instance = instance
		}
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out, nil
}
