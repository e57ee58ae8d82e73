package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// stored holds two cluster-wide objects and a claim: instance type u1, preference linux, claim labelled in any
// namespace.
type stored struct{}

func (stored) Read(_ context.Context, _, name string, into runtime.Object) error {
	text := map[string]string{
		"*v1beta1.VirtualMachineClusterInstancetype/u1":   `{metadata: {name: u1}, spec: {cpu: {guest: 2}, memory: {guest: 1Gi}}}`,
		"*v1beta1.VirtualMachineClusterInstancetype/gpu":  `{metadata: {name: gpu}, spec: {cpu: {guest: 2}, memory: {guest: 1Gi}, gpus: [{name: a, deviceName: v/b}]}}`,
		"*v1beta1.VirtualMachineClusterInstancetype/cpus": `{metadata: {name: cpus}, spec: {cpu: {guest: 2}, memory: {guest: 0}}}`,
		"*v1beta1.VirtualMachineClusterInstancetype/sev":  `{metadata: {name: sev}, spec: {cpu: {guest: 2}, memory: {guest: 1Gi}, launchSecurity: {tdx: {}}}}`,
		"*v1beta1.VirtualMachineClusterPreference/linux":  `{metadata: {name: linux}, spec: {machine: {preferredMachineType: pc-q35-9.2}, devices: {preferredDiskBus: virtio}}}`,
		"*v1beta1.VirtualMachineClusterPreference/tpm":    `{metadata: {name: tpm}, spec: {devices: {preferredTPM: {persistent: true}}}}`,
		"*v1beta1.VirtualMachineClusterPreference/fast":   `{metadata: {name: fast}, spec: {volumes: {preferredStorageClassName: fast}}}`,
		"*v1beta1.VirtualMachineClusterPreference/large":  `{metadata: {name: large}, spec: {requirements: {cpu: {guest: 4}, memory: {guest: 4Gi}}}}`,
		"*v1.PersistentVolumeClaim/labelled":              `{metadata: {labels: {instancetype.kubevirt.io/default-instancetype: u1, instancetype.kubevirt.io/default-preference: linux}}}`,
		"*v1beta1.VirtualMachineRestoreList/":             `{items: [{metadata: {name: first}, spec: {target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: busy}}}, {metadata: {name: over}, spec: {target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm}}, status: {complete: true}}]}`,
		"*v1.VirtualMachineInstanceMigrationList/":        `{items: [{metadata: {name: m, uid: m1, finalizers: [virtkit.io/with-disks]}}, {metadata: {name: n, uid: m2}}]}`,
		"*v1beta1.VirtualMachineSnapshot/secure":          `{status: {virtualMachineSnapshotContentName: secure}}`,
		"*v1beta1.VirtualMachineSnapshotContent/secure":   `{spec: {source: {virtualMachine: {metadata: {name: safe}, spec: {template: {spec: {domain: {devices: {tpm: {persistent: true}}}}}}}}}}`,
		"*v1beta1.VirtualMachineSnapshot/preferred":       `{status: {virtualMachineSnapshotContentName: preferred}}`,
		"*v1beta1.VirtualMachineSnapshotContent/preferred": `{
      spec: {volumeBackups: [{volumeName: root}, {volumeName: persistent-state-for-safe}], source: {virtualMachine: {
      metadata: {name: safe}, spec: {preference: {name: tpm}, template: {spec: {domain: {devices: {}}}}}}}}}`,
		"*v1.VirtualMachine/preferring": `{metadata: {name: preferring}, spec: {preference: {name: tpm}, template: {spec: {domain: {devices: {}}}}}}`,
		"*v1.VirtualMachine/there":      `{metadata: {name: there}}`,
		"*v1.VirtualMachine/safe":       `{metadata: {name: safe}, spec: {template: {spec: {domain: {devices: {tpm: {persistent: true}}}}}}}`,
		"*v1.VirtualMachine/leaving": `{metadata: {name: leaving, namespace: default}, spec: {template: {spec: {volumes: [
      {name: a, persistentVolumeClaim: {claimName: a}}, {name: b, persistentVolumeClaim: {claimName: b}}]}}},
      status: {volumeSnapshotStatuses: [{name: a, enabled: false, reason: no class}, {name: b, enabled: true}]}}`,
		"*v1.VirtualMachine/new": `{metadata: {name: new, namespace: default}, spec: {template: {spec: {volumes: [
      {name: a, persistentVolumeClaim: {claimName: a}}]}}}, status: {volumeSnapshotStatuses: [
      {name: a, enabled: false, reason: PVC a is bound when the VM is started for the first time}]}}`,
		"*v1.PersistentVolumeClaim/plain": `{metadata: {}}`,
	}[fmt.Sprintf("%T/%s", into, name)]
	if text == "" {
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return yaml.Unmarshal([]byte(text), into)
}

func reviewed(t *testing.T, path, object string) *admissionv1.AdmissionResponse {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	response, err := hooks.paths()[path](t.Context(), &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
	})
	if err != nil {
		t.Fatal(err)
	}
	return response
}

const referring = `
metadata: {name: vm, namespace: default}
spec:
  runStrategy: Always
  %s
  template:
    spec:
      domain: {%s}
      volumes: [{name: root, persistentVolumeClaim: {claimName: %s}}]
`

// The storage class of a preference is written into a VM, whose DataVolumes are made from its own templates.
func TestPreferredStorageClass(t *testing.T) {
	got := reviewed(t, "/mutate/virtualmachines",
		`{metadata: {name: vm, namespace: default}, spec: {runStrategy: Always, preference: {name: fast},
		dataVolumeTemplates: [{metadata: {name: a}, spec: {storage: {}}}, {metadata: {name: b}, spec: {storage: {storageClassName: own}}}], template: {spec: {domain: {devices: {}}}}}}`)
	if patch := string(got.Patch); !strings.Contains(patch, `"storageClassName":"fast"`) ||
		!strings.Contains(patch, `"storageClassName":"own"`) {
		t.Errorf("%t %s", got.Allowed, patch)
	}
}

func TestReferringMachines(t *testing.T) {
	for name, test := range map[string]struct{ refers, domain, claim, want string }{
		"instance type": {"instancetype: {name: u1}", "", "plain", ""},
		"both":          {"{instancetype: {name: u1}, preference: {name: linux}", "", "plain", ""},
		"unknown type": {
			"instancetype: {name: u9}", "", "plain",
			`warning: spec.instancetype.name: there is no VirtualMachineClusterInstancetype "u9"; create it, or name another; the VM does not start before`,
		},
		"unknown kind": {
			"instancetype: {name: u1, kind: Flavour}", "", "plain",
			`spec.instancetype.kind: "Flavour" is no kind of instance type; use VirtualMachineClusterInstancetype or VirtualMachineInstancetype`,
		},
		"namespaced": {
			"instancetype: {name: u1, kind: virtualmachineinstancetype}", "", "plain",
			`warning: spec.instancetype.name: there is no VirtualMachineInstancetype "u1" in namespace default; create it, or name another; the VM does not start before`,
		},
		"no revision": {
			"instancetype: {name: u1, revisionName: x}", "", "plain",
			`warning: spec.instancetype.revisionName: there is no ControllerRevision "x" in namespace default; remove revisionName to use the instance type of now; the VM does not start before`,
		},
		"type absent, large": {
			"{instancetype: {name: u9}, preference: {name: large}", "", "plain",
			`warning: spec.instancetype.name: there is no VirtualMachineClusterInstancetype "u9"`,
		},
		"unknown preference": {
			"{instancetype: {name: u1}, preference: {name: p9}", "", "plain",
			`warning: spec.preference.name: there is no VirtualMachineClusterPreference "p9"`,
		},
		"both unknown": {
			"{instancetype: {name: u9}, preference: {name: p9}", "", "plain",
			`warning: spec.instancetype.name: there is no VirtualMachineClusterInstancetype "u9"; create it, or name another; the VM does not start before, spec.preference.name: there is no VirtualMachineClusterPreference "p9"`,
		},
		"absent, and wrong": {
			"{instancetype: {name: u1}, preference: {name: p9}", "cpu: {cores: 2}", "plain",
			`spec.template.spec.domain.cpu.cores: conflicts with selected instance type "u1"`,
		},
		"nameless": {
			"instancetype: {}", "", "plain",
			`spec.instancetype.name: is not set; name the instance type, or a volume to infer it from with inferFromVolume`,
		},
		"conflict": {
			"instancetype: {name: u1}", "cpu: {cores: 2}, memory: {guest: 1Gi}", "plain",
			`spec.template.spec.domain.cpu.cores: conflicts with selected instance type "u1", which sets it; remove one of them; spec.template.spec.domain.memory.guest: conflicts with selected instance type "u1", which sets it; remove one of them`,
		},
		"too small": {
			"{instancetype: {name: u1}, preference: {name: large}", "", "plain",
			`spec.instancetype: failure checking preference requirements: insufficient CPU resources of 2 vCPU: preference "large" requires 4 vCPU; spec.instancetype: failure checking preference requirements: insufficient Memory resources of 1Gi: preference "large" requires 4Gi`,
		},
		"template small": {
			"preference: {name: large}", "cpu: {cores: 2}, memory: {guest: 1Gi}", "plain",
			`spec.template.spec.domain.cpu: failure checking preference requirements: insufficient CPU resources of 2 vCPU: preference "large" requires 4 vCPU; spec.template.spec.domain.memory.guest: failure checking preference requirements: insufficient Memory resources of 1Gi: preference "large" requires 4Gi`,
		},
		"not supported": {
			"instancetype: {name: sev}", "", "plain",
			`spec.template.spec.domain.launchSecurity.tdx: not supported by virtkit`,
		},
		"not permitted": {
			"instancetype: {name: gpu}", "", "plain",
			`spec.template.spec.domain.devices.gpus[0].deviceName: GPU v/b is not permitted in permittedHostDevices configuration`,
		},
		"no label": {
			"instancetype: {inferFromVolume: root}", "", "plain",
			`spec.instancetype.inferFromVolume: PersistentVolumeClaim "plain", of volume "root", has no label instancetype.kubevirt.io/default-instancetype`,
		},
		"no volume": {
			"instancetype: {inferFromVolume: other}", "", "plain",
			`spec.instancetype.inferFromVolume: no volume is named "other"`,
		},
		"no memory at all": {
			"preference: {name: linux}", "", "plain",
			`warning: spec.template.spec.domain.memory.guest is not set, and there is no instance type`,
		},
		"only vCPUs": {"instancetype: {name: cpus}", "", "plain", ""},
	} {
		t.Run(name, func(t *testing.T) {
			refers := strings.ReplaceAll(strings.TrimPrefix(test.refers, "{"), "}, preference", "}\n  preference")
			object := fmt.Sprintf(referring, refers, test.domain, test.claim)
			got := ""
			for _, path := range []string{"/mutate/virtualmachines", "/validate/virtualmachines"} {
				response := reviewed(t, path, object)
				if !response.Allowed {
					got = response.Result.Message
					break
				}
				if len(response.Warnings) > 0 {
					got = "warning: " + strings.Join(response.Warnings, ", ")
				}
			}
			if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// What conflicts with an instance type is a cause in KubeVirt's words, by which its clients tell it.
func TestConflictCauses(t *testing.T) {
	object := fmt.Sprintf(referring, "instancetype: {name: u1}",
		"cpu: {sockets: 1, cores: 1, threads: 1}, resources: {limits: {memory: 1Gi}}", "plain")
	response := reviewed(t, "/validate/virtualmachines", object)
	if response.Allowed || response.Result.Details == nil {
		t.Fatalf("%+v", response.Result)
	}
	var got []string
	for _, cause := range response.Result.Details.Causes {
		got = append(got, fmt.Sprintf("%s %s: %s", cause.Type, cause.Field, cause.Message))
	}
	var want []string
	for _, name := range []string{"cpu.sockets", "cpu.cores", "cpu.threads", "resources.limits.memory"} {
		path := "spec.template.spec.domain." + name
		want = append(want, "FieldValueInvalid "+path+": VM field(s) "+path+" conflicts with selected instance type")
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !strings.Contains(response.Result.Message, "which sets it; remove one of them") {
		t.Errorf("the message does not say what fixes it: %s", response.Result.Message)
	}
}

// A VM that cannot be expanded is refused in KubeVirt's words.
func TestExpandedConflicts(t *testing.T) {
	vm := &v1.VirtualMachine{}
	object := fmt.Sprintf(referring, "instancetype: {name: u1}", "cpu: {cores: 1}, memory: {guest: 1Gi}", "plain")
	if err := yaml.Unmarshal([]byte(object), vm); err != nil {
		t.Fatal(err)
	}
	const want = "VM field(s) spec.template.spec.domain.cpu.cores, spec.template.spec.domain.memory.guest " +
		"conflicts with selected instance type"
	if _, err := expanded(t.Context(), stored{}, vm); !apierrors.IsBadRequest(err) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Architecture and machine type are left to a preference that is not there yet.
func TestAbsentPreferenceDecidesLater(t *testing.T) {
	for preference, want := range map[string]bool{"linux": true, "p9": false} {
		response := reviewed(t, "/mutate/virtualmachines",
			fmt.Sprintf(referring, "preference: {name: "+preference+"}", "memory: {guest: 1Gi}", "plain"))
		if got := strings.Contains(string(response.Patch), `"architecture"`) &&
			strings.Contains(string(response.Patch), `"machine"`); !response.Allowed || got != want {
			t.Errorf("%s: %s", preference, response.Patch)
		}
	}
}

// What is inferred replaces the volume, and the memory that stood in for it is removed.
func TestInferredReferences(t *testing.T) {
	patch := func(object string) v1.VirtualMachineSpec {
		t.Helper()
		response := reviewed(t, "/mutate/virtualmachines", object)
		if !response.Allowed {
			t.Fatal(response.Result.Message)
		}
		var operations []struct {
			Path  string
			Value json.RawMessage
		}
		if err := json.Unmarshal(response.Patch, &operations); err != nil {
			t.Fatal(err)
		}
		var spec v1.VirtualMachineSpec
		for _, o := range operations {
			if o.Path != "/spec" {
				continue
			}
			if err := json.Unmarshal(o.Value, &spec); err != nil {
				t.Fatal(err)
			}
		}
		return spec
	}
	const ignored = "instancetype: {inferFromVolume: root, inferFromVolumeFailurePolicy: Ignore}\n" +
		"  preference: {inferFromVolume: root, inferFromVolumeFailurePolicy: Ignore}"
	spec := patch(fmt.Sprintf(referring, ignored, "memory: {guest: 512Mi}", "labelled"))
	if spec.Instancetype == nil ||
		*spec.Instancetype != (v1.InstancetypeMatcher{Name: "u1", Kind: "virtualmachineclusterinstancetype"}) {
		t.Errorf("instance type: %+v", spec.Instancetype)
	}
	if spec.Preference == nil ||
		*spec.Preference != (v1.PreferenceMatcher{Name: "linux", Kind: "virtualmachineclusterpreference"}) {
		t.Errorf("preference: %+v", spec.Preference)
	}
	if domain := spec.Template.Spec.Domain; domain.Memory != nil || domain.Machine.Type != "pc-q35-9.2" {
		t.Errorf("domain: %+v %+v", domain.Memory, domain.Machine)
	}
	for _, claim := range []string{"plain", "absent"} {
		spec = patch(fmt.Sprintf(referring, ignored, "memory: {guest: 512Mi}", claim))
		if spec.Instancetype != nil || spec.Preference != nil || spec.Template.Spec.Domain.Memory == nil {
			t.Errorf("%s: %+v %+v", claim, spec.Instancetype, spec.Preference)
		}
	}
}

func TestInstancetypesThemselves(t *testing.T) {
	for object, want := range map[string]string{
		`{metadata: {name: a}, spec: {cpu: {guest: 1}, memory: {guest: 1Gi}}}`: "",
		`{metadata: {name: a}, spec: {}}`:                                      "",
		`{metadata: {name: a}, spec: {memory: {guest: -1Gi}}}`: "spec.memory.guest: must not be negative; " +
			"it is the guest's memory, such as 1Gi",
		`{metadata: {name: a}, spec: {cpu: {guest: 4, maxSockets: 2}, memory: {guest: 1Gi}}}`: "spec.cpu.maxSockets: 2 " +
			"is less than cpu.guest, 4",
		`{metadata: {name: a}, spec: {cpu: {guest: 1}, memory: {guest: 2Gi, maxGuest: 1Gi}}}`: "spec.memory.maxGuest: 1Gi " +
			"is less than memory.guest, 2Gi",
		`{metadata: {name: a}, spec: {cpu: {guest: 1}, memory: {guest: 2Gi, overcommitPercent: 100}}}`: "spec.memory.overcommitPercent: 100 " +
			"is not a percentage from 0 to 99",
	} {
		if got := message(reviewed(t, "/validate/instancetypes", object)); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", object, got, want)
		}
	}
	for object, want := range map[string]string{
		`{metadata: {name: a}, spec: {cpu: {preferredCPUTopology: preferSpread, spreadOptions: {ratio: 4}}}}`: "",
		`{metadata: {name: a}, spec: {cpu: {spreadOptions: {ratio: 0}}}}`:                                     "spec.cpu.spreadOptions.ratio: must be 1 or more",
		`{metadata: {name: a}, spec: {firmware: {preferredUseBios: true, preferredUseEfi: true}}}`: "spec.firmware.preferredUseBios: cannot be set " +
			"together with UEFI; remove one",
	} {
		if got := message(reviewed(t, "/validate/preferences", object)); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", object, got, want)
		}
	}
}

func message(response *admissionv1.AdmissionResponse) string {
	if response.Allowed {
		return ""
	}
	return response.Result.Message
}
