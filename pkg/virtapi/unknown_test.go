package virtapi

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// A field that nobody knows is refused by its name, in every kind; one that was there before may stay.
func TestUnknownFields(t *testing.T) {
	const vm = `{metadata: {name: vm}, spec: {runStrategy: Always, template: {spec: {domain: {memory: {guest: 1Gi}, devices: {}}%s}}}}`
	with := func(more string) string { return strings.ReplaceAll(vm, "%s", more) }
	for name, tt := range map[string]struct{ path, object, old, want string }{
		"known": {"/mutate/virtualmachines", with(""), "", ""},
		"unknown": {
			"/mutate/virtualmachines", with(", portRanges: []"), "", "spec.template.spec.portRanges: is no field",
		},
		"also later": {
			"/validate/virtualmachines", with(", portRanges: []"), "", "spec.template.spec.portRanges: is no field",
		},
		"another case": {
			"/mutate/virtualmachines", with(", Volumes: []"), "", "spec.template.spec.Volumes: is no field",
		},
		"in a list": {
			"/mutate/virtualmachines", with(", volumes: [{name: a, emptyDisk: {capacity: 1Gi, colour: red}}]"), "",
			"spec.template.spec.volumes[0].emptyDisk.colour: is no field",
		},
		"two": {
			"/mutate/virtualmachines", with(", a: 1, b: 2"), "",
			"spec.template.spec.a: is no field that this version of virtkit knows; correct its name, " +
				"or remove it; spec.template.spec.b: is no field",
		},
		"there before": {"/mutate/virtualmachines", with(", portRanges: [1]"), with(", portRanges: []"), ""},
		"one more": {
			"/mutate/virtualmachines", with(", a: 1, b: 2"), with(", a: 1"), "spec.template.spec.b: is no field",
		},
		"outside of spec": {
			"/mutate/virtualmachines", strings.Replace(with(""), "spec:", "colour: red, spec:", 1), "", "",
		},
		"instance": {
			"/mutate/virtualmachineinstances", `{metadata: {name: a}, spec: {domain: {devices: {}}, colour: red}}`, "",
			"spec.colour: is no field",
		},
		"instance type": {
			"/validate/instancetypes",
			`{metadata: {name: a}, spec: {cpu: {guest: 1, colour: red}, memory: {guest: 1Gi}}}`, "",
			"spec.cpu.colour: is no field",
		},
		"preference": {
			"/validate/preferences", `{metadata: {name: a}, spec: {colour: red}}`, "", "spec.colour: is no field",
		},
		"migration": {
			"/validate/virtualmachineinstancemigrations", `{metadata: {name: a}, spec: {vmiName: vm, colour: red}}`, "",
			"spec.colour: is no field",
		},
		"policy": {
			"/validate/migrationpolicies", `{metadata: {name: a}, spec: {selectors: {}, colour: red}}`, "",
			"spec.colour: is no field",
		},
		"replica set": {
			"/validate/virtualmachineinstancereplicasets", `{metadata: {name: a}, spec: {colour: red}}`, "",
			"spec.colour: is no field",
		},
		"pool": {
			"/validate/virtualmachinepools", `{metadata: {name: a}, spec: {colour: red}}`, "",
			"spec.colour: is no field",
		},
		"snapshot": {
			"/validate/virtualmachinesnapshots",
			`{metadata: {name: a}, spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine}, colour: red}}`, "",
			"spec.colour: is no field",
		},
		"restore": {
			"/validate/virtualmachinerestores",
			`{metadata: {name: a}, spec: {target: {apiGroup: kubevirt.io, kind: VirtualMachine}, colour: red}}`, "",
			"spec.colour: is no field",
		},
		"clone": {
			"/validate/virtualmachineclones",
			`{metadata: {name: a}, spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm}, colour: red}}`,
			"", "spec.colour: is no field",
		},
		"KubeVirt": {
			"/validate/kubevirts", `{metadata: {name: a}, spec: {configuration: {colour: red}}}`, "",
			"spec.configuration.colour: is no field",
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw := func(text string) (out runtime.RawExtension) {
				if text != "" {
					var err error
					if out.Raw, err = yaml.YAMLToJSON([]byte(text)); err != nil {
						t.Fatal(err)
					}
				}
				return out
			}
			request := &admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: raw(tt.object), OldObject: raw(tt.old),
			}
			if tt.old != "" {
				request.Operation = admissionv1.Update
			}
			response, err := hooks.paths()[tt.path](t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if !response.Allowed {
				got = response.Result.Message
			}
			if tt.want == "" && strings.Contains(got, "is no field") || !strings.HasPrefix(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
