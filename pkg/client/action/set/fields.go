package set

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/eviction"
)

// CPU is how many CPUs a guest is to have. A zero is left as it is.
type CPU struct {
	// VCPUs is the number of all; the sockets follow from it.
	VCPUs                   uint32
	Sockets, Cores, Threads uint32
}

var (
	domain = []string{"spec", "template", "spec", "domain"}
	cpu    = append(slices.Clone(domain), "cpu")
)

// SetCPU changes the number of CPUs.
func SetCPU(c CPU) (Change, error) {
	switch {
	case c == CPU{}:
		return nil, errors.New("say how many vCPUs, or --sockets, --cores or --threads")
	case c.VCPUs > 0 && c.Sockets > 0:
		return nil, errors.New("--sockets cannot be given with the number of vCPUs: they follow from it")
	}
	return func(vm *unstructured.Unstructured) error {
		if err := sized(vm); err != nil {
			return err
		}
		per := uint32(1)
		for _, f := range []struct {
			name  string
			value uint32
		}{{"cores", c.Cores}, {"threads", c.Threads}} {
			if f.value > 0 {
				if err := put(vm, int64(f.value), append(slices.Clone(cpu), f.name)...); err != nil {
					return err
				}
				per *= f.value
				continue
			}
			per *= max(number(vm, append(slices.Clone(cpu), f.name)...), 1)
		}
		sockets := c.Sockets
		if c.VCPUs > 0 {
			if c.VCPUs%per != 0 {
				return &ValueError{fmt.Sprintf("%d vCPUs are no whole number of sockets, which have %d each; say "+
					"--cores or --threads", c.VCPUs, per)}
			}
			sockets = c.VCPUs / per
		}
		if sockets == 0 {
			return nil
		}
		return put(vm, int64(sockets), append(slices.Clone(cpu), "sockets")...)
	}, nil
}

func put(vm *unstructured.Unstructured, value any, path ...string) error {
	return unstructured.SetNestedField(vm.Object, value, path...)
}

// number returns a numeric field of an object that JSON's decoder made, 0 where it is not set.
func number(vm *unstructured.Unstructured, path ...string) uint32 {
	value, _, _ := unstructured.NestedFieldNoCopy(vm.Object, path...) // what is no number is none
	switch n := value.(type) {
	case float64:
		return uint32(n)
	case int64:
		return uint32(n) // the server holds it in 32 bits
	}
	return 0
}

// sized refuses to change a size that comes from an instance type.
func sized(vm *unstructured.Unstructured) error {
	matcher, found, err := unstructured.NestedMap(vm.Object, "spec", "instancetype")
	if err != nil || !found {
		return err
	}
	name, _ := matcher["name"].(string)
	return fmt.Errorf("its CPUs and memory come from the instance type %q; choose another, "+
		"or '' for none: virtctl set instancetype %s NAME -n %s", name, vm.GetName(), vm.GetNamespace())
}

// SetMemory changes what memory a guest has.
func SetMemory(text string) (Change, error) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no quantity of memory, such as 2Gi or 512Mi", text)
	}
	if sizing.NoUnit(quantity) {
		return nil, fmt.Errorf("%s is less than 1Mi; a quantity has a unit, such as 2Gi or 512Mi", text)
	}
	return func(vm *unstructured.Unstructured) error {
		if err := sized(vm); err != nil {
			return err
		}
		path := append(slices.Clone(domain), "memory", "guest")
		if have, _, _ := unstructured.NestedString(vm.Object, path...); have != "" {
			if is, err := resource.ParseQuantity(have); err == nil && is.Cmp(quantity) == 0 {
				return nil
			}
		}
		return put(vm, quantity.String(), path...)
	}, nil
}

// RunStrategies returns the run strategies that a user may choose.
func RunStrategies() []string {
	return []string{
		string(v1.RunStrategyAlways), string(v1.RunStrategyHalted), string(v1.RunStrategyManual),
		string(v1.RunStrategyOnce), string(v1.RunStrategyRerunOnFailure),
	}
}

// SetRunStrategy changes when a VM has a guest.
func SetRunStrategy(text string) (Change, error) {
	value, err := oneOf(text, RunStrategies())
	return func(vm *unstructured.Unstructured) error {
		unstructured.RemoveNestedField(vm.Object, "spec", "running") // the two exclude each other
		return put(vm, value, "spec", "runStrategy")
	}, err
}

// EvictionStrategies returns the eviction strategies.
func EvictionStrategies() []string {
	var out []string
	for _, strategy := range eviction.Strategies() {
		out = append(out, string(strategy))
	}
	return out
}

// SetEvictionStrategy changes what becomes of a guest whose node is drained.
func SetEvictionStrategy(text string) (Change, error) {
	value, err := oneOf(text, EvictionStrategies())
	return func(vm *unstructured.Unstructured) error {
		return put(vm, value, "spec", "template", "spec", "evictionStrategy")
	}, err
}

// oneOf returns the one of the words that text means, in whichever case it is written.
func oneOf(text string, words []string) (string, error) {
	for _, word := range words {
		if strings.EqualFold(word, text) {
			return word, nil
		}
	}
	return "", fmt.Errorf("%q is not one of %s", text, strings.Join(words, ", "))
}

// SetInstancetype changes the instance type: NAME of the cluster, or virtualmachineinstancetype/NAME of the namespace.
func SetInstancetype(text string) (Change, error) { return refer(text, "instancetype") }

// SetPreference changes the preference: NAME of the cluster, or virtualmachinepreference/NAME of the namespace, or
// empty for none.
func SetPreference(text string) (Change, error) { return refer(text, "preference") }

// refer makes a VM refer to another object, or to none where text is empty. The revision of the one that it referred to
// goes.
func refer(text, field string) (Change, error) {
	if text == "" {
		return func(vm *unstructured.Unstructured) error {
			unstructured.RemoveNestedField(vm.Object, "spec", field)
			return nil
		}, nil
	}
	kind, name, err := Reference(text, field)
	if err != nil {
		return nil, err
	}
	cluster := "virtualmachinecluster" + field
	return func(vm *unstructured.Unstructured) error {
		have, _, _ := unstructured.NestedMap(vm.Object, "spec", field)
		was, _ := have["kind"].(string)
		if have["name"] == name && (strings.EqualFold(was, kind) || was == "" && kind == cluster) {
			return nil
		}
		return put(vm, map[string]any{"kind": kind, "name": name}, "spec", field)
	}, nil
}

// Reference returns the kind, in lower case, and the name that NAME or KIND/NAME stands for; field is instancetype or
// preference.
func Reference(text, field string) (kind, name string, err error) {
	own, cluster := "virtualmachine"+field, "virtualmachinecluster"+field
	kind, name, found := strings.Cut(text, "/")
	if !found {
		kind, name = cluster, text
	}
	kind = strings.ToLower(kind)
	if kind != own && kind != cluster {
		return "", "", fmt.Errorf("%q is not one of %s, %s", kind, own, cluster)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%s is not NAME or %s/NAME", strconv.Quote(text), own)
	}
	return kind, name, nil
}
