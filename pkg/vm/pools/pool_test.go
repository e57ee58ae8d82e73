package pools

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

const template = `
metadata: {labels: {app: web}, annotations: {note: x}}
spec:
  runStrategy: Always
  dataVolumeTemplates: [{metadata: {name: root}, spec: {storage: {}}}]
  template:
    metadata: {labels: {tier: front}}
    spec:
      domain: {devices: {}}
      volumes:
      - {name: root, dataVolume: {name: root}}
      - {name: claim, persistentVolumeClaim: {claimName: root}}
      - {name: shared, persistentVolumeClaim: {claimName: shared}}
      - {name: map, configMap: {name: m}}
      - {name: secret, secret: {secretName: s}}
      - {name: seed, cloudInitNoCloud: {secretRef: {name: u}, networkDataSecretRef: {name: net}}}
      - {name: drive, cloudInitConfigDrive: {secretRef: {name: u}, networkDataSecretRef: {name: net}}}
      - {name: answers, sysprep: {configMap: {name: a}}}
      - {name: secrets, sysprep: {secret: {name: b}}}
`

func parse(t *testing.T, text string) *v1beta1.VirtualMachineTemplateSpec {
	t.Helper()
	out := &v1beta1.VirtualMachineTemplateSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// names are those that the VM's volumes refer to, in their order.
func names(vm *v1.VirtualMachine) []string {
	var out []string
	for i := range vm.Spec.Template.Spec.Volumes {
		source := &vm.Spec.Template.Spec.Volumes[i].VolumeSource
		if source.DataVolume != nil {
			out = append(out, source.DataVolume.Name)
		}
		if source.PersistentVolumeClaim != nil {
			out = append(out, source.PersistentVolumeClaim.ClaimName)
		}
		configMaps, secrets := references(source)
		for _, name := range slices.Concat(configMaps, secrets) {
			out = append(out, *name)
		}
	}
	return out
}

func TestMachine(t *testing.T) {
	pool := &v1beta1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid"}}
	for name, tc := range map[string]struct {
		generation *v1beta1.VirtualMachinePoolNameGeneration
		want       []string
	}{
		"disks": {nil, []string{"root-7", "root-7", "shared", "m", "s", "u", "net", "u", "net", "a", "b"}},
		"switched off": {
			&v1beta1.VirtualMachinePoolNameGeneration{AppendIndexToConfigMapRefs: new(false)},
			[]string{"root-7", "root-7", "shared", "m", "s", "u", "net", "u", "net", "a", "b"},
		},
		"config maps": {
			&v1beta1.VirtualMachinePoolNameGeneration{AppendIndexToConfigMapRefs: new(true)},
			[]string{"root-7", "root-7", "shared", "m-7", "s", "u", "net", "u", "net", "a-7", "b"},
		},
		"secrets": {
			&v1beta1.VirtualMachinePoolNameGeneration{AppendIndexToSecretRefs: new(true)},
			[]string{"root-7", "root-7", "shared", "m", "s-7", "u-7", "net-7", "u-7", "net-7", "a", "b-7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := &Template{VirtualMachineTemplate: parse(t, template), NameGeneration: tc.generation}
			for _, key := range reserved.Keys() {
				metav1.SetMetaDataAnnotation(&of.VirtualMachineTemplate.ObjectMeta, key, "x")
				metav1.SetMetaDataAnnotation(&of.VirtualMachineTemplate.Spec.Template.ObjectMeta, key, "x")
			}
			before := of.VirtualMachineTemplate.DeepCopy()
			vm := Machine(pool, of, 7, "web-3")
			if diff := cmp.Diff(tc.want, names(vm)); diff != "" {
				t.Errorf("names -want +got\n%s", diff)
			}
			if vm.Name != "web-7" || vm.Namespace != "ns" || vm.Labels["app"] != "web" ||
				vm.Annotations["note"] != "x" || !metav1.IsControlledBy(vm, pool) ||
				vm.Labels[v1.VirtualMachinePoolRevisionName] != "web-3" ||
				vm.Spec.DataVolumeTemplates[0].Name != "root-7" ||
				vm.Spec.Template.ObjectMeta.Labels["tier"] != "front" ||
				vm.Spec.Template.ObjectMeta.Labels[v1.VirtualMachinePoolRevisionName] != "web-3" {
				t.Errorf("%+v", vm)
			}
			for _, of := range []map[string]string{vm.Annotations, vm.Spec.Template.ObjectMeta.Annotations} {
				if key := reserved.Changed(of, nil); key != "" {
					t.Errorf("it has the components' annotation %s", key)
				}
			}
			if diff := cmp.Diff(before, of.VirtualMachineTemplate); diff != "" {
				t.Errorf("the template was changed\n%s", diff)
			}
		})
	}
	if vm := Machine(pool, &Template{VirtualMachineTemplate: &v1beta1.VirtualMachineTemplateSpec{}},
		0, ""); vm.Name != "web-0" || len(vm.Labels) > 0 {
		t.Errorf("of nothing: %+v", vm)
	}
}

func TestOrdinal(t *testing.T) {
	for name, want := range map[string]int{
		"web-0": 0, "web-12": 12, "web-012": -1, "web-": -1, "web": -1, "web-x": -1, "web--1": -1, "web-1-2": -1,
		"other-1": -1, "web-99999999999999999999": -1,
	} {
		got, ok := Ordinal("web", name)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestCompareRevisions(t *testing.T) {
	got := []string{"web-10", "odd", "web-2", "web-9"}
	slices.SortFunc(got, CompareRevisions)
	if diff := cmp.Diff([]string{"odd", "web-2", "web-9", "web-10"}, got); diff != "" {
		t.Error(diff)
	}
}
