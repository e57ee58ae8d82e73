package clones

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// What does not come along is what the VM names of its namespace, each once: not claims, which the snapshot has, nor
// networks of another namespace, nor an instance type of which the VM has a copy.
func TestLeft(t *testing.T) {
	const text = `
instancetype: {kind: VirtualMachineInstancetype, name: small}
preference: {kind: VirtualMachinePreference, name: linux, revisionName: linux-1}
template:
  spec:
    accessCredentials:
    - sshPublicKey: {source: {secret: {secretName: keys}}, propagationMethod: {noCloud: {}}}
    networks:
    - {name: a, multus: {networkName: lan}}
    - {name: b, multus: {networkName: shared/lan}}
    - {name: c, pod: {}}
    volumes:
    - {name: root, persistentVolumeClaim: {claimName: root}}
    - {name: data, dataVolume: {name: data}}
    - {name: seed, cloudInitNoCloud: {secretRef: {name: keys}}}
    - {name: conf, configMap: {name: conf}}
    - {name: token, serviceAccount: {serviceAccountName: robot}}`
	spec := &v1.VirtualMachineSpec{}
	if err := yaml.Unmarshal([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ConfigMap conf", "NetworkAttachmentDefinition lan", "Secret keys", "ServiceAccount robot",
		"VirtualMachineInstancetype small",
	}
	if got := Left(spec); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if said := LeftText(spec, "team-b"); !strings.Contains(said, "Secret keys") ||
		!strings.Contains(said, "namespace team-b") {
		t.Errorf("says %q", said)
	}
	if said := LeftText(&v1.VirtualMachineSpec{}, "team-b"); said != "" {
		t.Errorf("of nothing it says %q", said)
	}
}

func TestMade(t *testing.T) {
	clone := &metav1.ObjectMeta{UID: "a"}
	for uid, want := range map[string]bool{"a": true, "b": false, "": false} {
		if got := Made(clone, &metav1.ObjectMeta{Labels: map[string]string{UIDLabel: uid}}); got != want {
			t.Errorf("%q: %t", uid, got)
		}
	}
	if Made(&metav1.ObjectMeta{}, &metav1.ObjectMeta{}) {
		t.Error("a clone without UID has made something")
	}
}

// TestStateTrouble refuses a copy under another name of a VM whose state goes by its name.
func TestStateTrouble(t *testing.T) {
	yes, no := true, false
	tpm := func(persistent *bool) *v1.VirtualMachineInstanceTemplateSpec {
		out := &v1.VirtualMachineInstanceTemplateSpec{}
		out.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: persistent}
		return out
	}
	for name, tc := range map[string]struct {
		template *v1.VirtualMachineInstanceTemplateSpec
		target   string
		refused  bool
	}{
		"no template":    {nil, "copy", false},
		"no state":       {tpm(nil), "copy", false},
		"not kept":       {tpm(&no), "copy", false},
		"kept":           {tpm(&yes), "copy", true},
		"a name is made": {tpm(&yes), "", true},
		"the same name":  {tpm(&yes), "vm", false},
	} {
		vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{Template: tc.template}}
		if got := StateTrouble("vm", KeepsState(vm), tc.target); (got != "") != tc.refused {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestVolumeNumber(t *testing.T) {
	clone := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{UID: "a-b"}}
	for name, want := range map[string]bool{
		VolumeName(clone, 12): true,
		"clone-a-b-012":       false, "clone-a-b-": false, "clone-a-12": false, "12": false, "": false,
	} {
		content := &metav1.ObjectMeta{Name: name, Labels: map[string]string{UIDLabel: "a-b"}}
		if n, got := VolumeNumber(clone, content); got != want || got && n != 12 {
			t.Errorf("%q: %d, %v, want %v", name, n, got, want)
		}
		content.Labels[UIDLabel] = "c"
		if _, got := VolumeNumber(clone, content); got {
			t.Errorf("%q is another clone's, by its label", name)
		}
	}
}
