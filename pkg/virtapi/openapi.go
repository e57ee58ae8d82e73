package virtapi

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiversion "k8s.io/apimachinery/pkg/version"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/version"
)

// definitions gives the server its OpenAPI, versions 2 and 3, which clients fetch through the API
// server in front.
func definitions(c *genericapiserver.Config) {
	namer := apiopenapi.NewDefinitionNamer(runtime.NewScheme())
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(schemas, namer)
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(schemas, namer)
	for _, info := range []*spec.Info{c.OpenAPIConfig.Info, c.OpenAPIV3Config.Info} {
		info.Title = "virtkit subresources"
		info.Version = version.Get().GitVersion
	}
}

// documented are the types of answers; the types of requests are the endpoints'. A VirtualMachine is documented by its
// CRD and is any object here.
var documented = []any{
	metav1.APIGroup{},
	metav1.APIGroupList{},
	metav1.APIResource{},
	metav1.APIResourceList{},
	metav1.GroupVersionForDiscovery{},
	metav1.ServerAddressByClientCIDR{},
	apiversion.Info{},
}

// schemas describes them from their Go types, as openapi-gen would, with the descriptions that the
// types carry.
func schemas(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	out := map[string]common.OpenAPIDefinition{
		modelName(reflect.TypeFor[v1.VirtualMachine]()): {
			Schema: spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}},
		},
	}
	types := map[reflect.Type]bool{}
	for _, value := range documented {
		structs(reflect.TypeOf(value), types)
	}
	for _, e := range (&requests{}).endpoints() {
		if e.body != nil {
			structs(reflect.TypeOf(e.body), types)
		}
	}
	for t := range types {
		schema, needs := object(t, ref)
		out[modelName(t)] = common.OpenAPIDefinition{Schema: schema, Dependencies: needs}
	}
	return out
}

// structs adds a type to found, and the types that its fields refer to.
func structs(t reflect.Type, found map[reflect.Type]bool) {
	if writesItself(t) {
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		structs(t.Elem(), found)
	case reflect.Struct:
		if found[t] || t == reflect.TypeFor[v1.VirtualMachine]() {
			return
		}
		found[t] = true
		for i := range t.NumField() {
			structs(t.Field(i).Type, found)
		}
	}
}

// modelName returns kube-openapi's name of a type: the one that the type declares, or its Go name.
func modelName(t reflect.Type) string {
	if named, ok := reflect.Zero(t).Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	return t.PkgPath() + "." + t.Name()
}

func object(t reflect.Type, ref common.ReferenceCallback) (spec.Schema, []string) {
	schema := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: map[string]spec.Schema{}}}
	docs := map[string]string{}
	if documented, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		docs = documented.SwaggerDoc()
	}
	schema.Description = docs[""]
	var needs []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.Contains(options, "inline") || f.Anonymous && name == "" {
			inner, more := object(f.Type, ref)
			for key, property := range inner.Properties {
				schema.Properties[key] = property
			}
			needs = append(needs, more...)
			continue
		}
		property, more := property(f.Type, ref)
		property.Description = docs[name]
		schema.Properties[name] = property
		needs = append(needs, more...)
	}
	return schema, needs
}

// writesItself reports a type such as metav1.Duration, whose JSON is not its fields; all there are write a string.
func writesItself(t reflect.Type) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

func property(t reflect.Type, ref common.ReferenceCallback) (spec.Schema, []string) {
	simple := func(kind, format string) (spec.Schema, []string) {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{kind}, Format: format}}, nil
	}
	if t == reflect.TypeFor[metav1.Duration]() {
		return simple("string", "")
	}
	if writesItself(t) {
		return simple("string", "")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return property(t.Elem(), ref)
	case reflect.Slice:
		items, needs := property(t.Elem(), ref)
		return spec.Schema{
			SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &items}},
		}, needs
	case reflect.Struct:
		name := modelName(t)
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(name)}}, []string{name}
	case reflect.Bool:
		return simple("boolean", "")
	case reflect.Int64:
		return simple("integer", "int64")
	case reflect.Int32, reflect.Int, reflect.Uint32, reflect.Uint:
		return simple("integer", "int32")
	default:
		return simple("string", "")
	}
}
