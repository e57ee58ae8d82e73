package virtapi

import (
	"reflect"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Every type that a request or an answer refers to is described: the server does not start otherwise.
func TestSchemas(t *testing.T) {
	all := schemas(func(path string) spec.Ref { return spec.MustCreateRef("#/definitions/" + path) })
	for name, definition := range all {
		for _, needed := range definition.Dependencies {
			if _, ok := all[needed]; !ok {
				t.Errorf("%s refers to %s, which is not described", name, needed)
			}
		}
	}
	for _, e := range (&requests{}).endpoints() {
		if e.body == nil {
			continue
		}
		if name := modelName(reflect.TypeOf(e.body)); all[name].Schema.Type == nil {
			t.Errorf("%s is not described", name)
		}
	}
}
