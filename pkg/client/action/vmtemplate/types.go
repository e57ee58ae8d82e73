package vmtemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
)

// ParameterError is a value that is missing, makes no sense, or is for a parameter that the template does not have.
type ParameterError struct{ text string }

func (e *ParameterError) Error() string { return e.text }

func parameterErrorf(format string, args ...any) error {
	return &ParameterError{fmt.Sprintf(format, args...)}
}

// index is an element of a list in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// check returns an error unless the VM's fields are of their types, as the server would refuse it. from has the
// parameters of each field's value, by the field's path without indices.
func check(machine *unstructured.Unstructured, from, values map[string]string) error {
	data, err := machine.MarshalJSON()
	if err != nil {
		return fmt.Errorf("spec.virtualMachine: %w", err)
	}
	err = json.Unmarshal(data, &v1.VirtualMachine{})
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		if err != nil {
			return fmt.Errorf("spec.virtualMachine: the VM that it makes is not valid: %w", err)
		}
		return nil
	}
	path := "spec.virtualMachine." + wrong.Field
	if name := from[path]; name != "" {
		return parameterErrorf("parameter %s: %q makes %s a %s, and it must be %s", name, values[name], path,
			wrong.Value, typeName(wrong.Type))
	}
	return fmt.Errorf("%s is a %s, and it must be %s", path, wrong.Value, typeName(wrong.Type))
}

// typeName names a Go type as JSON has it.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number that is not negative"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return "an object"
}

// unreadable returns what is wrong with a text that is no object, without the names of Go's types.
func unreadable(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Field == "":
		return fmt.Errorf("it is no YAML object, but a %s", wrong.Value)
	}
	return fmt.Errorf("%s is a %s, and it must be %s", wrong.Field, wrong.Value, typeName(wrong.Type))
}
