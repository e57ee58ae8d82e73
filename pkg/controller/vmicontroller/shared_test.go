package vmicontroller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// came is a VMI that came by a migration with two volumes, data and more, in one attachment pod.
func came() View {
	view := plugged(volumeIn(v1.VolumeReady, "shared"))
	second := view.VMI.Spec.Volumes[0].DeepCopy()
	second.Name, second.PersistentVolumeClaim.ClaimName = "more", "d"
	view.VMI.Spec.Volumes = append(view.VMI.Spec.Volumes, *second)
	status := *volumeIn(v1.VolumeReady, "shared")
	status.Name, status.PersistentVolumeClaimInfo = "more", &v1.PersistentVolumeClaimInfo{ClaimName: "d"}
	view.VMI.Status.VolumeStatus = append(view.VMI.Status.VolumeStatus, status)
	claim := view.Claims["c"].DeepCopy()
	claim.Name = "d"
	view.Claims["d"] = claim
	view.Attachments = []*corev1.Pod{attachPod("shared", true)}
	return view
}

// When a volume goes that shares its attachment pod, the others get pods of their own first.
func TestUnplugShared(t *testing.T) {
	view := came()
	if step := Next(view); len(step.CreateAttachments) != 0 || len(step.DeleteAttachments) != 0 {
		t.Fatalf("at rest: %+v", step)
	}
	view.VMI.Spec.Volumes = view.VMI.Spec.Volumes[:1] // more is to go
	view.VMI.Status.VolumeStatus[1].Phase = v1.HotplugVolumeDetaching
	if step := Next(view); len(step.CreateAttachments) != 0 || len(step.DeleteAttachments) != 0 {
		t.Fatalf("while the guest has it: %+v", step)
	}
	view.VMI.Status.VolumeStatus[1].Phase = v1.HotplugVolumeUnMounted
	if step := Next(view); !slices.Equal(step.CreateAttachments, []string{"data"}) || len(step.DeleteAttachments) != 0 {
		t.Fatalf("when the guest has let go: %+v", step)
	}
	view.VMI.Status.VolumeStatus[0].HotplugVolume.AttachPodUID = "own"
	view.Attachments = append(view.Attachments, attachPod("own", false))
	if step := Next(view); len(step.CreateAttachments) != 0 || len(step.DeleteAttachments) != 0 {
		t.Fatalf("while the new pod starts: %+v", step)
	}
	view.Attachments[1] = attachPod("own", true)
	if step := Next(view); len(step.DeleteAttachments) != 1 || step.DeleteAttachments[0].UID != "shared" ||
		step.Status.VolumeStatus[0].Phase != v1.VolumeReady {
		t.Fatalf("when the new pod runs: %+v", step)
	}
}

// While the guest moves nothing changes; afterwards the pods of the node that it left go, and only they.
func TestPlugWhileMoving(t *testing.T) {
	view := came()
	view.VMI.Spec.Volumes = nil
	view.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{TargetPod: "target"}
	if step := Next(view); len(step.DeleteAttachments) != 0 || step.Status.VolumeStatus[0].Phase != v1.VolumeReady {
		t.Errorf("while it moves: %+v", step)
	}
	view = came()
	owned := func(pod *corev1.Pod, launcher types.UID) *corev1.Pod {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: launcher, Controller: new(true)}}
		return pod
	}
	view.Attachments = []*corev1.Pod{
		owned(attachPod("shared", true), "launcher"), owned(attachPod("left", true), "before"),
		owned(attachPod("next", true), "coming"),
	}
	view.Pods = append(view.Pods,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "before"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "coming"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	if step := Next(view); len(step.DeleteAttachments) != 1 || step.DeleteAttachments[0].UID != "left" {
		t.Errorf("afterwards: %+v", step.DeleteAttachments)
	}
}
