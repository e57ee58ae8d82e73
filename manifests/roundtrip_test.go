package manifests_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/randfill"
)

// schemas are the structural schemas of the definitions by kind.
func schemas(t *testing.T) map[string]*structuralschema.Structural {
	t.Helper()
	all := map[string]*structuralschema.Structural{}
	for _, o := range decode(t, "crds/*.yaml") {
		crd := typed[apiextensionsv1.CustomResourceDefinition](t, o)
		for _, version := range crd.Spec.Versions {
			internal := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
				version.Schema.OpenAPIV3Schema, internal, nil); err != nil {
				t.Fatal(err)
			}
			s, err := structuralschema.NewStructural(internal)
			if err != nil {
				t.Fatalf("%s %s: %v", crd.Name, version.Name, err)
			}
			if errs := structuralschema.ValidateStructural(nil, s); len(errs) > 0 {
				t.Fatalf("%s %s is not structural: %v", crd.Name, version.Name, errs.ToAggregate())
			}
			all[crd.Spec.Names.Kind] = s
		}
	}
	return all
}

// TestNothingIsPruned fills objects of KubeVirt's Go types at random and checks that the API server would store every
// field: what the schema does not know, it drops, and admission could not reject it any more.
func TestNothingIsPruned(t *testing.T) {
	all := schemas(t)
	fill := randfill.NewWithSeed(2).NilChance(0.2).NumElements(1, 2).MaxDepth(40).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(int64(c.Int31()), resource.DecimalSI)
		},
		func(i *intstr.IntOrString, c randfill.Continue) { *i = intstr.FromInt32(c.Int31()) },
		func(at *metav1.Time, _ randfill.Continue) { *at = metav1.Unix(1767225600, 0) },
		// Those of an object's own metadata the API server fills in itself.
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			*m = metav1.ObjectMeta{
				Name: c.String(8), Namespace: c.String(8),
				Labels:      map[string]string{"label": c.String(4)},
				Annotations: map[string]string{"annotation": c.String(4)},
			}
		},
		func(*metav1.FieldsV1, randfill.Continue) {},
	)
	for kind, object := range map[string]func() any{
		"VirtualMachine":                   func() any { return &v1.VirtualMachine{} },
		"VirtualMachineInstance":           func() any { return &v1.VirtualMachineInstance{} },
		"VirtualMachineInstanceReplicaSet": func() any { return &v1.VirtualMachineInstanceReplicaSet{} },
		"VirtualMachineInstanceMigration":  func() any { return &v1.VirtualMachineInstanceMigration{} },
		"VirtualMachinePool":               func() any { return &v1beta1.VirtualMachinePool{} },
		"KubeVirt":                         func() any { return &v1.KubeVirt{} },
	} {
		t.Run(kind, func(t *testing.T) {
			for range 20 {
				o := object()
				fill.Fill(o)
				sent, stored := tree(t, o), tree(t, o)
				pruning.Prune(stored, all[kind], true)
				if diff := cmp.Diff(sent, stored); diff != "" {
					t.Fatalf("the schema drops (-sent +stored):\n%s", diff)
				}
			}
		})
	}
}

// Clients built with older libraries write `creationTimestamp: null` into a template's metadata.
func TestTemplateMetadataIsKept(t *testing.T) {
	sent := `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"vm"},"spec":{"template":{
		"metadata":{"creationTimestamp":null,"labels":{"a":"b"}},"spec":{"domain":{"devices":{}}}}}}`
	var want, got map[string]any
	for _, into := range []*map[string]any{&want, &got} {
		if err := json.Unmarshal([]byte(sent), into); err != nil {
			t.Fatal(err)
		}
	}
	pruning.Prune(got, schemas(t)["VirtualMachine"], true)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the schema drops (-sent +stored):\n%s", diff)
	}
}

func tree(t *testing.T, o any) map[string]any {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}
