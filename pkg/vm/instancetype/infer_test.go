package instancetype

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"
)

// shelf is a Reader of claims and DataSources, by kind, namespace and name.
type shelf map[string]runtime.Object

func (s shelf) Read(_ context.Context, namespace, name string, into runtime.Object) error {
	kind := "claim"
	if _, ok := into.(*cdiv1.DataSource); ok {
		kind = "source"
	}
	switch object := s[fmt.Sprintf("%s %s/%s", kind, namespace, name)].(type) {
	case *corev1.PersistentVolumeClaim:
		object.DeepCopyInto(into.(*corev1.PersistentVolumeClaim))
	case *cdiv1.DataSource:
		object.DeepCopyInto(into.(*cdiv1.DataSource))
	default:
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	return nil
}

// What a DataVolume is cloned from tells as the claim will.
func TestInferFromDataVolume(t *testing.T) {
	labels := map[string]string{
		"instancetype.kubevirt.io/default-instancetype":      "small",
		"instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
	}
	claim := func(labels map[string]string) *corev1.PersistentVolumeClaim {
		pvc := &corev1.PersistentVolumeClaim{}
		pvc.Labels = labels
		return pvc
	}
	source := func(labels map[string]string, of *cdiv1.DataVolumeSourcePVC) *cdiv1.DataSource {
		ds := &cdiv1.DataSource{Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: of}}}
		ds.Labels = labels
		return ds
	}
	const clone = `{metadata: {name: dv}, spec: {source: {pvc: {namespace: images, name: golden}}}}`
	const named = `{metadata: {name: dv}, spec: {sourceRef: {kind: DataSource, namespace: images, name: fedora}}}`
	for name, test := range map[string]struct {
		template, want string
		there          shelf
	}{
		"no template, no claim": {
			`{metadata: {name: other}}`, `PersistentVolumeClaim "dv", of volume "root", does not exist`, nil,
		},
		"no template": {`{metadata: {name: other}}`, "", shelf{"claim ns/dv": claim(labels)}},
		"template": {
			`{metadata: {name: dv, labels: {instancetype.kubevirt.io/default-instancetype: small, instancetype.kubevirt.io/default-instancetype-kind: VirtualMachineInstancetype}}}`,
			"", nil,
		},
		"import": {
			`{metadata: {name: dv}, spec: {source: {http: {url: x}}}}`,
			`dataVolumeTemplate "dv", of volume "root", has no label`, nil,
		},
		"clone":            {clone, "", shelf{"claim images/golden": claim(labels)}},
		"clone of nothing": {clone, `PersistentVolumeClaim "golden", of volume "root", does not exist`, nil},
		"clone without labels": {
			clone, `PersistentVolumeClaim "golden", of volume "root", has no label`,
			shelf{"claim images/golden": claim(nil)},
		},
		"clone from here": {
			`{metadata: {name: dv}, spec: {source: {pvc: {name: golden}}}}`, "",
			shelf{"claim ns/golden": claim(labels)},
		},
		"DataSource": {
			named, "", shelf{"source images/fedora": source(labels, &cdiv1.DataVolumeSourcePVC{Name: "gone"})},
		},
		"no DataSource": {named, `DataSource images/fedora, of volume "root", does not exist`, nil},
		"DataSource's claim": {
			named, "",
			shelf{
				"source images/fedora": source(nil, &cdiv1.DataVolumeSourcePVC{Name: "golden"}),
				"claim images/golden":  claim(labels),
			},
		},
		"DataSource of no claim": {
			named, `DataSource images/fedora, of volume "root", has no label`,
			shelf{"source images/fedora": source(nil, nil)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{}
			text := `{metadata: {namespace: ns}, spec: {instancetype: {inferFromVolume: root}, dataVolumeTemplates: [` +
				test.template + `], template: {spec: {volumes: [{name: root, dataVolume: {name: dv}}]}}}}`
			if err := yaml.UnmarshalStrict([]byte(text), vm); err != nil {
				t.Fatal(err)
			}
			err := Infer(t.Context(), test.there, vm)
			var missing *NotFoundError
			switch {
			case test.want == "" && err != nil:
				t.Fatal(err)
			case test.want == "":
				if m := vm.Spec.Instancetype; m.Name != "small" || m.Kind != "VirtualMachineInstancetype" {
					t.Errorf("inferred %+v", m)
				}
			case !errors.As(err, &missing) || !strings.Contains(missing.Detail, test.want):
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
