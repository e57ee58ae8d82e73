package volumemigration

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// What is to be done about a VM whose copies were not finished is one command, which the VM takes.
func TestRevert(t *testing.T) {
	vm := &v1.VirtualMachine{}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *template(both)}
	if got := Revert(vm); got != "" {
		t.Errorf("nothing was copied: %s", got)
	}
	vmi := running()
	vmi.Spec.Volumes = template(both).Volumes
	vm.Status.VolumeUpdateState = UpdateState(vm, vmi)
	volumes := vm.Spec.Template.Spec.Volumes
	volumes[1].VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "d"}}
	vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{}, {ObjectMeta: metav1.ObjectMeta{Name: "d"}}}
	const want = `[` +
		`{"op":"replace","path":"/spec/template/spec/volumes/0/persistentVolumeClaim/claimName","value":"a"},` +
		`{"op":"replace","path":"/spec/dataVolumeTemplates/1/metadata/name","value":"b"},` +
		`{"op":"replace","path":"/spec/template/spec/volumes/1/dataVolume/name","value":"b"}]`
	got := Revert(vm)
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	before, err := json.Marshal(vm)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch([]byte(got))
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatal(err)
	}
	reverted := &v1.VirtualMachine{}
	if err := json.Unmarshal(after, reverted); err != nil {
		t.Fatal(err)
	}
	if is := reverted.Spec.Template.Spec.Volumes; claims.Name(&is[0]) != "a" ||
		claims.Name(&is[1]) != "b" || Unfinished(reverted, nil) ||
		reverted.Spec.DataVolumeTemplates[1].Name != "b" || Revert(reverted) != "" {
		t.Errorf("the VM has volumes %+v, and is to be patched with %s", is, Revert(reverted))
	}
}
