package surface

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/version"
)

var testDefaults = Defaults{NewUUID: func() string { return "5d307ca9-b3ef-428c-8861-06e72d69f223" }}

var specPath = field.NewPath("spec")

// parse reads YAML strictly, so that a test cannot misspell a field.
func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return object
}

const basicSpec = `
domain:
  memory: {guest: 1Gi}
  devices:
    disks:
    - {name: root, disk: {bus: virtio}}
volumes:
- {name: root, containerDisk: {image: registry.example/disk:1}}
`

// instance is a VMI whose spec is the basic one with top-level sections replaced by those given.
func instance(t testing.TB, sections string) *v1.VirtualMachineInstance {
	t.Helper()
	merged := map[string]any{}
	for _, text := range []string{basicSpec, sections} {
		if err := yaml.Unmarshal([]byte(text), &merged); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	text, err := yaml.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm"},
		Spec:       *parse[v1.VirtualMachineInstanceSpec](t, string(text)),
	}
}

func machine(t testing.TB, spec string) *v1.VirtualMachine {
	t.Helper()
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm"},
		Spec:       *parse[v1.VirtualMachineSpec](t, spec),
	}
	if vm.Spec.Template != nil && vm.Spec.Template.Spec.Domain.Memory == nil {
		vm.Spec.Template.Spec = *parse[v1.VirtualMachineInstanceSpec](t, basicSpec)
	}
	return vm
}

func TestDocumentIsCurrent(t *testing.T) {
	got, err := os.ReadFile("../../../docs/api-surface.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Markdown(), string(got)); diff != "" {
		t.Errorf("docs/api-surface.md is not current; run `go generate ./pkg/vm/surface`\n%s", diff)
	}
}

// Every path of the table must be a field of the API, once.
func TestTable(t *testing.T) {
	for _, kind := range Kinds() {
		seen := map[string]bool{}
		for _, f := range kind.Fields {
			describe(reflect.TypeOf(kind.prototype), f.Path) // panics on a wrong path
			if seen[f.Path] || f.Effect == "" {
				t.Errorf("%s: %s: twice or without effect", kind.Name, f.Path)
			}
			seen[f.Path] = true
		}
	}
}

// The kinds of snapshots, restores, clones and exports are KubeVirt's with all fields, also those of a later version:
// admission refuses none of them as unsupported, so each must be honoured, and be in the table.
func TestCopyKindsAreWhole(t *testing.T) {
	names := map[string]bool{}
	for _, kind := range copyKinds() {
		names[kind.Name] = true
		for _, path := range missing(reflect.TypeOf(kind.prototype), tree(kind.Fields), "") {
			t.Errorf("%s: spec.%s is not in the table", kind.Name, path)
		}
	}
	for _, name := range []string{
		"VirtualMachineSnapshot", "VirtualMachineSnapshotContent", "VirtualMachineRestore", "VirtualMachineClone",
		"VirtualMachineExport",
	} {
		if !names[name] || !strings.Contains(Markdown(), "\n## "+name+"\n") {
			t.Errorf("the page does not have %s", name)
		}
	}
}

// missing returns the fields of a struct that are neither in the table nor below an entry of it.
func missing(of reflect.Type, at *node, prefix string) (out []string) {
	of = element(of)
	for i := range of.NumField() {
		name, inline := jsonName(of.Field(i))
		switch next := at.children[name]; {
		case inline:
			out = append(out, missing(of.Field(i).Type, at, prefix)...)
		case name == "":
		case next == nil:
			out = append(out, prefix+name)
		case next.entry == nil:
			out = append(out, missing(of.Field(i).Type, next, prefix+name+".")...)
		}
	}
	return out
}

func TestUnsupported(t *testing.T) {
	tail := ": not supported by virtkit " + version.Get().GitVersion + "; see docs/api-surface.md"
	for name, tc := range map[string]struct {
		spec string
		want []string // fields
	}{
		"inline": {
			`domain: {devices: {gpus: [{name: g, claimName: c, requestName: r}]}}`,
			[]string{"spec.domain.devices.gpus[0].claimName", "spec.domain.devices.gpus[0].requestName"},
		},
		"in a list": {
			`domain: {devices: {disks: [{name: root, changedBlockTracking: true}]}}`,
			[]string{"spec.domain.devices.disks[0].changedBlockTracking"},
		},
		"marker object": {
			`domain: {devices: {interfaces: [{name: a, slirp: {}}]}}`,
			[]string{"spec.domain.devices.interfaces[0].slirp"},
		},
		"section": {`utilityVolumes: [{name: a}]`, []string{"spec.utilityVolumes"}},
		"resource": {
			`domain: {resources: {requests: {example.com/x: 1, memory: 1Gi}}}`,
			[]string{"spec.domain.resources.requests.example.com/x"},
		},
		"switch on": {
			`domain: {devices: {disks: [{name: a, changedBlockTracking: true}]}}`,
			[]string{"spec.domain.devices.disks[0].changedBlockTracking"},
		},
		"switch off": {
			`domain: {devices: {blockMultiQueue: false, disks: [{name: a, changedBlockTracking: false}]}}`, nil,
		},
		"switch off elsewhere": {`domain: {features: {hyperv: {relaxed: {enabled: false}}}}`, nil},
		"empty": {
			`{accessCredentials: [], domain: {ioThreadsPolicy: null, devices: {filesystems: []}}, livenessProbe: null}`,
			nil,
		},
		"several": {
			`{utilityVolumes: [{name: a}], resourceClaims: [{name: b}]}`,
			[]string{"spec.resourceClaims", "spec.utilityVolumes"},
		},
		"volume":         {`volumes: [{name: root, dataVolume: {name: x}}]`, nil},
		"hotpluggable":   {`volumes: [{name: root, persistentVolumeClaim: {claimName: x, hotpluggable: true}}]`, nil},
		"hotplug of CDI": {`volumes: [{name: root, dataVolume: {name: x, hotpluggable: true}}]`, nil},
		"whole trees": {
			`{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}, tolerations: [{key: a, tolerationSeconds: 3}], dnsConfig: {options: [{name: ndots}]}}`,
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, tc.spec)
			var want []string
			for _, f := range tc.want {
				want = append(want, f+tail+remedyOf(f))
			}
			got := Message(unsupported(vmi.Spec, instanceTree(), specPath))
			if got != strings.Join(want, "; ") {
				t.Errorf("got  %s\nwant %s", got, strings.Join(want, "; "))
			}
		})
	}
	t.Run("virtual machine", func(t *testing.T) {
		vm := machine(t,
			`{runStrategy: Always, instancetype: {name: u1}, dataVolumeTemplates: [{}], template: {metadata: {labels: {a: b}, name: x}, spec: {domain: {memory: {guest: 1Gi}, launchSecurity: {tdx: {}}}}}}`)
		got := Message(unsupported(vm.Spec, machineTree(), specPath))
		want := "spec.template.metadata.name" + tail + "; spec.template.spec.domain.launchSecurity.tdx" + tail +
			remedies["launchSecurity.tdx"]
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func remedyOf(path string) string { return remedies[path[strings.LastIndexByte(path, '.')+1:]] }

// Each entry of the table, when it is set, must be accepted by the walk.
func TestTableIsAccepted(t *testing.T) {
	spec := v1.VirtualMachineInstanceSpec{}
	fill(reflect.ValueOf(&spec).Elem(), instanceTree())
	if errs := unsupported(spec, instanceTree(), specPath); len(errs) > 0 {
		t.Error(Message(errs))
	}
}

// fill sets what the table names: one element in each list and map.
func fill(v reflect.Value, at *node) {
	if at == nil {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), at)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), at)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for name := range at.children {
			v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, inline := jsonName(v.Type().Field(i))
			if inline {
				fill(v.Field(i), at)
			} else if name != "" {
				fill(v.Field(i), at.children[name])
			}
		}
	case reflect.String:
		if at.entry != nil && len(at.entry.Only) > 0 {
			v.SetString(at.entry.Only[0])
		}
	case reflect.Bool:
		v.SetBool(true)
	}
}
