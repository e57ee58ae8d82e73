// Package rollout says when a changed field of a VirtualMachine takes effect: at once, when its guest is started again,
// or not at all. Compare finds the fields in which two versions of an object differ, EffectOf classifies one, and
// Beyond finds what a template asks for and an earlier VMI lacks. virt-controller writes the condition RestartRequired
// by it, and virtctl diff shows it beforehand. It is pure: decoded JSON in, values out.
package rollout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is a field in which two versions of an object differ.
type Change struct {
	// Path is the field, in JSON names joined by dots; an element of a list is [NAME] where its elements have names,
	// else its index: "spec.template.spec.volumes[root].containerDisk.image".
	Path string
	// Before and After are the values as decoded JSON, nil for a field that is absent.
	Before, After any
}

// Compare lists the fields in which two decoded JSON objects differ, by path.
func Compare(before, after map[string]any) []Change {
	var out []Change
	compareMaps("", before, after, &out)
	slices.SortStableFunc(out, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func compareMaps(path string, before, after map[string]any, out *[]Change) {
	for key, value := range before {
		compare(join(path, key), value, after[key], out)
	}
	for key, value := range after {
		if _, both := before[key]; !both {
			compare(join(path, key), nil, value, out)
		}
	}
}

func join(path, key string) string {
	if strings.ContainsAny(key, "./[]") {
		return fmt.Sprintf("%s[%s]", path, key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func compare(path string, before, after any, out *[]Change) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			compareMaps(path, b, a, out)
			return
		}
	case []any:
		if a, ok := after.([]any); ok || after == nil {
			compareLists(path, b, a, out)
			return
		}
	case nil:
		if a, ok := after.([]any); ok {
			compareLists(path, nil, a, out)
			return
		}
	}
	*out = append(*out, Change{Path: path, Before: before, After: after})
}

// compareLists compares lists by their elements; one that is absent is as one that is empty.
func compareLists(path string, before, after []any, out *[]Change) {
	b, bNamed := named(before)
	a, aNamed := named(after)
	if bNamed && aNamed {
		for name, value := range b {
			compare(path+"["+name+"]", value, a[name], out)
		}
		for name, value := range a {
			if _, both := b[name]; !both {
				compare(path+"["+name+"]", nil, value, out)
			}
		}
		return
	}
	for i := range max(len(before), len(after)) {
		var x, y any
		if i < len(before) {
			x = before[i]
		}
		if i < len(after) {
			y = after[i]
		}
		compare(fmt.Sprintf("%s[%d]", path, i), x, y, out)
	}
}

// named returns a list by the names of its elements, if all have one of their own.
func named(list []any) (map[string]any, bool) {
	out := map[string]any{}
	for _, element := range list {
		fields, ok := element.(map[string]any)
		if !ok {
			return nil, false
		}
		name, ok := fields["name"].(string)
		if _, twice := out[name]; !ok || twice {
			return nil, false
		}
		out[name] = element
	}
	return out, true
}

// Beyond lists the paths at which a template asks for something that a VMI made from an earlier version of it lacks.
// Fields that the template leaves out are not compared, since a VMI has defaults there, and what was plugged in.
func Beyond(template, instance map[string]any) []string {
	var out []string
	for _, c := range Compare(instance, template) {
		if c.After != nil {
			out = append(out, c.Path)
		}
	}
	return out
}
