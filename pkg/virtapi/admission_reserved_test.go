package virtapi

import (
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

// noted is an object with an annotation.
func noted(object, key, value string) string {
	return strings.Replace(object, "metadata: {", `metadata: {annotations: {`+key+`: '`+value+`'}, `, 1)
}

// templated is goodMachine with an annotation of its template.
func templated(key, value string) string {
	meta := "template:\n    metadata: {annotations: {" + key + ": '" + value + "'}}\n"
	return strings.Replace(goodMachine, "template:\n", meta, 1)
}

// brought is a record that a migration's disks are being brought; the cluster of the tests has migration m1.
func brought(migration string) string { return `{"migration":"` + migration + `","disks":[]}` }

// Annotations by which a tenant could have the components act for him are theirs alone, wherever he puts them.
func TestReservedAnnotations(t *testing.T) {
	const (
		controller = "system:serviceaccount:kubevirt:virt-controller"
		api        = "system:serviceaccount:kubevirt:virt-api"
		vms        = "/validate/virtualmachines"
		vmis       = "/validate/virtualmachineinstances"
	)
	if !strings.Contains(templated("a", "b"), "a: 'b'") {
		t.Fatal("the template has no annotation")
	}
	type try struct{ path, user, object, old, want string }
	tries := map[string]try{}
	for _, key := range reserved.Keys() {
		own, inTemplate := "metadata.annotations["+key+"]: ", "spec.template.metadata.annotations["+key+"]: "
		for _, user := range []string{"jane", "system:serviceaccount:default:virt-controller"} {
			tries["VM of "+user+" with "+key] = try{vms, user, noted(goodMachine, key, "a"), "", own}
			tries["template of "+user+" with "+key] = try{vms, user, templated(key, "a"), "", inTemplate}
			tries["VMI of "+user+" with "+key] = try{vmis, user, noted(goodInstance, key, "a"), "", own}
		}
		tries["VM gets "+key] = try{vms, "jane", noted(goodMachine, key, "a"), goodMachine, own}
		tries["VM has another "+key] = try{vms, "jane", noted(goodMachine, key, "b"), noted(goodMachine, key, "a"), own}
		tries["template gets "+key] = try{vms, "jane", templated(key, "a"), goodMachine, inTemplate}
		tries["VMI gets "+key] = try{vmis, "jane", noted(goodInstance, key, "a"), goodInstance, own}
		tries["VMI without "+key] = try{vmis, "jane", goodInstance, noted(goodInstance, key, "a"), own}
		tries["VM keeps "+key] = try{
			vms, "jane", larger(noted(goodMachine, key, "a")), noted(goodMachine, key, "a"), "",
		}
		tries["finalizer of a VM with "+key] = try{
			vms, "jane", strings.Replace(noted(goodMachine, key, "a"), "name: vm", "name: vm, finalizers: [a.b/c]", 1),
			noted(goodMachine, key, "a"), "",
		}
		tries["template keeps "+key] = try{vms, "jane", larger(templated(key, "a")), templated(key, "a"), ""}
		tries["template without "+key] = try{vms, "jane", goodMachine, templated(key, "a"), ""}
		tries["VMI keeps "+key] = try{vmis, "jane", noted(goodInstance, key, "a"), noted(goodInstance, key, "a"), ""}
		tries["virt-controller's VM with "+key] = try{vms, controller, noted(goodMachine, key, "a"), goodMachine, ""}
		tries["virt-controller's VMI with "+key] = try{
			vmis, controller, noted(goodInstance, key, "a"), goodInstance, "",
		}
		patch := `{"op":"add","path":"/metadata/annotations/` + strings.ReplaceAll(key, "/", "~1") + `","value":"a"}`
		says := "spec.patches[0]: writes the annotation " + key + ","
		tries["restore that patches "+key] = try{
			"/validate/virtualmachinerestores", "jane", restoreWith(", patches: ['" + patch + "']"), "", says,
		}
		tries["clone that patches "+key] = try{
			"/validate/virtualmachineclones", "jane", cloneWith(", patches: ['" + patch + "']"), "", says,
		}
		tries["clone that patches "+key+" later"] = try{
			"/validate/virtualmachineclones", "jane", cloneWith(", patches: ['" + patch + "']"), cloneWith(""), says,
		}
		tries["clone with a patch of "+key+" from before"] = try{
			"/validate/virtualmachineclones", "jane", cloneWith(", patches: ['" + patch + "']"),
			cloneWith(", patches: ['" + patch + "']"), "",
		}
		set := `{metadata: {name: s}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b},
			annotations: {` + key + `: a}}, spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}}}`
		tries["replica set with "+key] = try{
			"/validate/virtualmachineinstancereplicasets", "jane", set, "", inTemplate,
		}
		tries["replica set that keeps "+key] = try{
			"/validate/virtualmachineinstancereplicasets", "jane", larger(set), set, "",
		}
		pool := poolOf(`runStrategy: Always, template: {metadata: {annotations: {` + key +
			`: a}}, spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}`)
		tries["pool with "+key] = try{
			"/validate/virtualmachinepools", "jane", pool, "",
			"spec.virtualMachineTemplate.spec.template.metadata.annotations[" + key + "]: ",
		}
		tries["pool that keeps "+key] = try{"/validate/virtualmachinepools", "jane", larger(pool), pool, ""}
		tries["pool of VMs with "+key] = try{
			"/validate/virtualmachinepools", "jane",
			strings.Replace(
				poolOf(`runStrategy: Always, template: {spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}`),
				"metadata: {labels", "metadata: {annotations: {"+key+": a}, labels", 1), "",
			"spec.virtualMachineTemplate.metadata.annotations[" + key + "]: ",
		}
	}
	const record = reserved.DisksBrought
	for name, c := range map[string]try{
		"the guest is to boot": {vms, "jane", goodMachine, noted(goodMachine, reserved.ResumeMemory, "a"), ""},
		"record of a migration that is there, removed": {
			vms, "jane", goodMachine, noted(goodMachine, record, brought("m1")),
			"metadata.annotations[" + record + "]: ",
		},
		"record of a migration that has let go, removed": {
			vms, "jane", goodMachine, noted(goodMachine, record, brought("m2")), "",
		},
		"record of a migration that is gone, removed": {
			vms, "jane", goodMachine, noted(goodMachine, record, brought("m3")), "",
		},
		"record that nobody can read, removed": {vms, "jane", goodMachine, noted(goodMachine, record, "a"), ""},
		"record, removed by virt-controller": {
			vms, controller, goodMachine, noted(goodMachine, record, brought("m1")), "",
		},
		"volumes that virt-api plugs": {
			vmis, api, noted(goodInstance, reserved.DeclaredVolumes, "b"),
			noted(goodInstance, reserved.DeclaredVolumes, "a"), "",
		},
		"the first volume that virt-api plugs": {
			vmis, api, noted(goodInstance, reserved.DeclaredVolumes, "b"), goodInstance, "",
		},
		"another annotation from virt-api": {
			vmis, api, noted(goodInstance, reserved.MovedVolumes, "b"), goodInstance,
			"metadata.annotations[" + reserved.MovedVolumes + "]: ",
		},
	} {
		tries[name] = c
	}
	for name, tc := range tries {
		t.Run(name, func(t *testing.T) {
			got := ask(t, tc.path, tc.user, tc.object, tc.old)
			switch {
			case tc.want == "" && !got.Allowed:
				t.Errorf("denied: %s", got.Result.Message)
			case tc.want != "" && (got.Allowed || !strings.HasPrefix(got.Result.Message, tc.want)):
				t.Errorf("allowed %v: %+v", got.Allowed, got.Result)
			}
		})
	}
}
