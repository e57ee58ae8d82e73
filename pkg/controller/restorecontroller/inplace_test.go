package restorecontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// userOf is a VM, VMI or pod with a claim.
func userOf(kind, name, claim string) client.Object {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: name}
	source := corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	volumes := []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: source},
	}}}
	switch kind {
	case "vm":
		template := &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{Volumes: volumes}}
		return &v1.VirtualMachine{ObjectMeta: meta, Spec: v1.VirtualMachineSpec{Template: template}}
	case "vmi":
		return &v1.VirtualMachineInstance{ObjectMeta: meta, Spec: v1.VirtualMachineInstanceSpec{Volumes: volumes}}
	}
	return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &source}},
	}}}
}

// inPlaceWorld has a VM, which lost the claim "data" after its snapshot if moved, and a restore of it in place.
func inPlaceWorld(t *testing.T, moved bool, others ...client.Object) *world {
	t.Helper()
	vm, objects := source(false)
	if moved {
		vm.Spec.Template.Spec.Volumes = vm.Spec.Template.Spec.Volumes[1:]
	}
	return newWorld(t, append(append(objects, vm, restoreOf("vm", inPlace)), others...)...)
}

func reasonOf(r *v1beta1.VirtualMachineRestore) string {
	return conditions.Find(r.Status.Conditions, v1beta1.ConditionReady).Reason
}

// untouched checks that no claim was deleted and that the VM is the old one, and free.
func (w *world) untouched() {
	w.Helper()
	for _, name := range []string{"data", "root"} {
		if claim := w.claim(name); claim == nil || string(claim.UID) != name {
			w.Errorf("after %v: claim %s is %+v", w.writes, name, claim)
		}
	}
	if vm := w.vm("vm"); vm.Status.RestoreInProgress != nil || vm.Spec.Template.Spec.Domain.CPU.Cores != 4 {
		w.Errorf("after %v: VM %+v", w.writes, vm)
	}
}

// A claim that another VM or a VMI uses is not replaced, whether the target has it too or not: the restore fails before
// anything is deleted, and holds nothing.
func TestInPlaceOfAnothersClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		other client.Object
		moved bool
		says  string
	}{
		"moved to a VM":    {userOf("vm", "beta", "data"), true, "VM beta"},
		"moved to a VMI":   {userOf("vmi", "probe", "data"), true, "vmi/probe"},
		"shared with a VM": {userOf("vm", "beta", "root"), false, "VM beta"},
	} {
		t.Run(name, func(t *testing.T) {
			w := inPlaceWorld(t, tc.moved, tc.other)
			w.run(100)
			r := w.restore()
			if says := reasonOf(r); !conditions.True(r.Status.Conditions, v1beta1.ConditionFailure) ||
				!strings.Contains(says, "is used by "+tc.says+", and volumeRestorePolicy InPlace would delete it") {
				t.Errorf("after %v: it says %q", w.writes, says)
			}
			w.untouched()
		})
	}
}

// The target's guest is not stopped for a restore that will not be.
func TestInPlaceOfAnothersClaimStopsNobody(t *testing.T) {
	vmi := userOf("vmi", "vm", "root")
	vmi.SetOwnerReferences([]metav1.OwnerReference{{Kind: "VirtualMachine", Name: "vm", Controller: new(true)}})
	w := inPlaceWorld(t, true, vmi, userOf("vm", "beta", "data"))
	r := w.restore()
	r.Spec.TargetReadinessPolicy = new(v1beta1.VirtualMachineRestoreStopTarget)
	w.must(w.client.Update(t.Context(), r))
	w.run(100)
	if r := w.restore(); !conditions.True(r.Status.Conditions, v1beta1.ConditionFailure) {
		t.Errorf("after %v: it says %q", w.writes, reasonOf(r))
	}
	if vm := w.vm("vm"); len(vm.Status.StateChangeRequests) > 0 {
		t.Errorf("after %v: the target is asked to stop", w.writes)
	}
	w.untouched()
}

// A pod is waited for.
func TestInPlaceOfAPodsClaim(t *testing.T) {
	pod := userOf("pod", "backup", "data")
	w := inPlaceWorld(t, false, pod)
	w.run(100)
	if says := reasonOf(w.restore()); !strings.Contains(says, "PVC ns/data is used by pod/backup") ||
		conditions.True(w.restore().Status.Conditions, v1beta1.ConditionFailure) {
		t.Errorf("after %v: it says %q", w.writes, says)
	}
	w.untouched()
	w.must(w.client.Delete(t.Context(), pod))
	w.run(100)
	if r := w.restore(); !isTrue(completeOf(r)) {
		t.Errorf("after %v: %+v", w.writes, r.Status)
	}
}

// A claim that nobody uses is replaced, also when the target does not have it any more, as by KubeVirt.
func TestInPlaceOfAFreeClaim(t *testing.T) {
	w := inPlaceWorld(t, true, userOf("vm", "beta", "other"))
	w.run(100)
	if claim := w.claim("data"); !isTrue(completeOf(w.restore())) || claim == nil || claim.UID == "data" {
		t.Errorf("after %v: %+v, claim %+v", w.writes, w.restore().Status, claim)
	}
}

// A VM that takes a claim before any write of the restore keeps it. A restore that has replaced other claims by then
// goes no further until the claim is free.
func TestInPlaceIsOvertaken(t *testing.T) {
	overtaken := 0
	for writes := range 12 {
		w := inPlaceWorld(t, true)
		w.run(writes)
		claim := w.claim("data")
		if claim == nil || claim.UID != "data" {
			continue
		}
		overtaken++
		beta := userOf("vm", "beta", "data")
		w.must(w.client.Create(t.Context(), beta))
		w.run(100)
		if claim := w.claim("data"); claim == nil || claim.UID != "data" || isTrue(completeOf(w.restore())) {
			t.Fatalf("after %d writes, %v: claim %+v", writes, w.writes, claim)
		}
		if held, failed := w.vm("vm").Status.RestoreInProgress != nil,
			conditions.True(w.restore().Status.Conditions, v1beta1.ConditionFailure); held == failed {
			t.Errorf("after %d writes, %v: held %t, failed %t", writes, w.writes, held, failed)
		}
		if conditions.True(w.restore().Status.Conditions, v1beta1.ConditionFailure) {
			continue
		}
		w.must(w.client.Delete(t.Context(), beta))
		w.run(100)
		if !isTrue(completeOf(w.restore())) {
			t.Errorf("after %d writes, %v: %+v", writes, w.writes, w.restore().Status)
		}
	}
	if overtaken < 4 {
		t.Errorf("%d times before the deletion", overtaken)
	}
}
