package surface

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// UnknownFields returns the paths below spec for which T has no field, in the order of their names; none for invalid
// JSON, which others refuse. encoding/json would find them, but not through the types of KubeVirt that decode
// themselves.
func UnknownFields[T any](raw []byte) []string {
	var object struct {
		Spec any `json:"spec"`
	}
	if len(raw) == 0 || kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return nil
	}
	spec, ok := fieldsOf(reflect.TypeFor[T]())["spec"]
	if !ok {
		return nil
	}
	return strangers(nil, "spec", object.Spec, spec)
}

// strangers adds to out the paths in a value, which is at path, for which the type of its place has no field.
func strangers(out []string, path string, value any, of reflect.Type) []string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch value := value.(type) {
	case []any:
		if of.Kind() == reflect.Slice || of.Kind() == reflect.Array {
			for i, element := range value {
				out = strangers(out, fmt.Sprintf("%s[%d]", path, i), element, of.Elem())
			}
		}
	case map[string]any:
		var fields map[string]reflect.Type
		switch {
		case of.Kind() == reflect.Struct && !opaque(of):
			fields = fieldsOf(of)
		case of.Kind() != reflect.Map:
			return out
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			below := path + "." + name
			switch at, known := fields[name]; {
			case fields == nil:
				out = strangers(out, below, value[name], of.Elem())
			case known:
				out = strangers(out, below, value[name], at)
			default:
				out = append(out, below)
			}
		}
	}
	return out
}

// opaque reports a type whose JSON is not its fields', such as a quantity or a time. KubeVirt's that decode themselves
// only tidy up what they have read.
func opaque(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) &&
		!strings.HasPrefix(t.PkgPath(), "kubevirt.io/api/")
}

// fieldsOf returns the types of a struct's fields by their names in JSON, with those of the structs that are part of
// it.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			maps.Copy(out, fieldsOf(inner))
		case name == "":
			out[f.Name] = f.Type
		default:
			out[name] = f.Type
		}
	}
	return out
}
