// Package vmtemplate makes VirtualMachines of VirtualMachineTemplates, and these of OpenShift's Templates. The kinds
// are those of KubeVirt's add-on virt-template (template.kubevirt.io), with its syntax: ${NAME} within any string, and
// ${{NAME}} as a whole string for a value of another type. All is done here, from a file or from what the cluster has,
// so that a file needs no add-on.
package vmtemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	// Group is the API group of VirtualMachineTemplates, version the one that templates are written in.
	Group   = "template.kubevirt.io"
	version = "v1beta1"
	// Kind is a template's, OpenShift that of OpenShift's (group template.openshift.io).
	Kind      = "VirtualMachineTemplate"
	OpenShift = "Template"
)

// Parameter is a value that a template leaves open.
type Parameter struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName,omitempty"`
	Description string `json:"description,omitempty"`
	// Value is used unless the user gives another. Without one, the generator Generate makes one out of From.
	Value    string `json:"value,omitempty"`
	Generate string `json:"generate,omitempty"`
	From     string `json:"from,omitempty"`
	// Required says that there must be a value in the end.
	Required bool `json:"required,omitempty"`
}

// Template is a VirtualMachineTemplate.
type Template struct {
	Name       string
	Parameters []Parameter
	// Message says to the user what to do with the VM; it may name parameters.
	Message string
	// machine is the VirtualMachine, with names of parameters in it.
	machine map[string]any
}

// Parse reads a VirtualMachineTemplate, YAML or JSON.
func Parse(data []byte) (*Template, error) {
	var in struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			VirtualMachine map[string]any `json:"virtualMachine"`
			Parameters     []Parameter    `json:"parameters"`
			Message        string         `json:"message"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("read the template: %w", unreadable(err))
	}
	group, _, _ := strings.Cut(in.APIVersion, "/")
	switch {
	case in.Kind == OpenShift:
		return nil, errors.New("it is a Template of OpenShift's; make a VirtualMachineTemplate of it with " +
			"`virtctl template convert`")
	case in.Kind != Kind || group != Group:
		return nil, fmt.Errorf("it is a %q of %q, not a %s of %s", in.Kind, in.APIVersion, Kind, Group)
	case len(in.Spec.VirtualMachine) == 0:
		return nil, errors.New("spec.virtualMachine is empty; it describes the VirtualMachine")
	}
	kind, _ := in.Spec.VirtualMachine["kind"].(string)
	if kind != "" && kind != v1.VirtualMachineGroupVersionKind.Kind {
		return nil, fmt.Errorf("spec.virtualMachine is a %s, not a VirtualMachine", kind)
	}
	seen := map[string]bool{}
	for i, p := range in.Spec.Parameters {
		switch {
		case !parameterName.MatchString(p.Name):
			return nil, fmt.Errorf("spec.parameters[%d].name: %q is not letters, digits and _", i, p.Name)
		case seen[p.Name]:
			return nil, fmt.Errorf("spec.parameters[%d].name: there are two parameters %s", i, p.Name)
		}
		seen[p.Name] = true
	}
	return &Template{
		Name: in.Metadata.Name, Parameters: in.Spec.Parameters, Message: in.Spec.Message,
		machine: in.Spec.VirtualMachine,
	}, nil
}

// Random makes what parameters generate.
func Random() *rand.Rand {
	return rand.New(rand.NewChaCha8(seed())) //nolint:gosec // seeded by the system's generator, for passwords as well
}

// Processed is the result of a template.
type Processed struct {
	// Machine is the VirtualMachine, of kubevirt.io/v1.
	Machine *unstructured.Unstructured
	// Message is the template's, with the parameters' values.
	Message string
	// Unused are parameters that the template does not use.
	Unused []string
}

// Process makes the VirtualMachine, with given values for some parameters. A namespace in the template is left out
// unless it is a parameter's: the VM is to be made where its user is.
func (t *Template) Process(given map[string]string, random *rand.Rand) (*Processed, error) {
	values, err := t.values(given, random)
	if err != nil {
		return nil, err
	}
	machine := (&unstructured.Unstructured{Object: t.machine}).DeepCopy()
	if ns, _, _ := unstructured.NestedString(machine.Object, "metadata", "namespace"); !reference.MatchString(ns) {
		unstructured.RemoveNestedField(machine.Object, "metadata", "namespace")
	}
	s := substitution{values: values, used: map[string]bool{}, from: map[string]string{}}
	for key, value := range machine.Object {
		if machine.Object[key], err = s.in(value, "spec.virtualMachine."+key); err != nil {
			return nil, err
		}
	}
	machine.SetGroupVersionKind(v1.VirtualMachineGroupVersionKind)
	if err := check(machine, s.from, values); err != nil {
		return nil, err
	}
	out := &Processed{Machine: machine}
	if out.Message, err = s.text(t.Message, "spec.message"); err != nil {
		return nil, err
	}
	for _, p := range t.Parameters {
		if !s.used[p.Name] {
			out.Unused = append(out.Unused, p.Name)
		}
	}
	return out, nil
}

// values returns the parameters' values by name.
func (t *Template) values(given map[string]string, random *rand.Rand) (map[string]string, error) {
	values, names := map[string]string{}, []string{}
	for i, p := range t.Parameters {
		names = append(names, p.Name)
		value, ok := given[p.Name]
		if !ok {
			value = p.Value
		}
		if value == "" && p.Generate != "" {
			if p.Generate != "expression" {
				return nil, fmt.Errorf("spec.parameters[%d].generate: %q is not expression, the only generator", i,
					p.Generate)
			}
			var err error
			if value, err = generate(p.From, random); err != nil {
				return nil, fmt.Errorf("spec.parameters[%d].from: %w", i, err)
			}
		}
		if value == "" && p.Required {
			return nil, parameterErrorf("parameter %s needs a value; give it one with --param %[1]s=VALUE", p.Name)
		}
		values[p.Name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := values[name]; !ok {
			return nil, parameterErrorf("the template has no parameter %s; it has: %s", name, strings.Join(names, ", "))
		}
	}
	return values, nil
}

var (
	parameterName = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)
	reference     = regexp.MustCompile(`\$\{([a-zA-Z0-9_]+)\}`)
	typed         = regexp.MustCompile(`^\$\{\{([a-zA-Z0-9_]+)\}\}$`)
)

// substitution puts values in the place of parameters.
type substitution struct {
	values map[string]string
	used   map[string]bool
	// from is the last parameter in a field's value, by the field's path without indices.
	from map[string]string
}

func (s *substitution) value(name, path string) (string, error) {
	value, ok := s.values[name]
	if !ok {
		return "", fmt.Errorf("%s: the template has no parameter %s", path, name)
	}
	s.used[name] = true
	s.from[index.ReplaceAllString(path, "")] = name
	return value, nil
}

// in replaces all strings of a JSON value, keys too.
func (s *substitution) in(value any, path string) (any, error) {
	switch value := value.(type) {
	case string:
		return s.string(value, path)
	case []any:
		for i := range value {
			var err error
			if value[i], err = s.in(value[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return value, nil
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, inner := range value {
			name, err := s.text(key, path+"."+key)
			if err != nil {
				return nil, err
			}
			if out[name], err = s.in(inner, path+"."+key); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return value, nil
}

// string returns text with its parameters' values, or the value of another type that the whole text stands for.
func (s *substitution) string(text, path string) (any, error) {
	whole := typed.FindStringSubmatch(text)
	if whole == nil {
		return s.text(text, path)
	}
	value, err := s.value(whole[1], path)
	if err != nil {
		return nil, err
	}
	var out any
	if err := json.Unmarshal([]byte(value), &out); err != nil {
		return value, nil //nolint:nilerr // what is no JSON is a string
	}
	if out == nil {
		return nil, parameterErrorf("%s: parameter %s is null; give it a value", path, whole[1])
	}
	if number, ok := out.(float64); ok && number == float64(int64(number)) {
		return int64(number), nil
	}
	return out, nil
}

// text returns text with its parameters' values; references within a value are not replaced.
func (s *substitution) text(text, path string) (string, error) {
	var failed error
	out := reference.ReplaceAllStringFunc(text, func(match string) string {
		value, err := s.value(match[2:len(match)-1], path)
		failed = errors.Join(failed, err)
		return value
	})
	return out, failed
}
