package vmicontroller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// plugged is a VMI that runs with a hotplugged volume "data" on the claim "c", its launcher, and the claim.
func plugged(status *v1.VolumeStatus) View {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vmi"}}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
			Hotpluggable:                      true,
		}}},
	}
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "node1"
	vmi.Status.ActivePods = map[types.UID]string{"launcher": "node1"}
	if status != nil {
		vmi.Status.VolumeStatus = []v1.VolumeStatus{*status}
	}
	return View{
		VMI: vmi,
		Pods: []*corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-vm", UID: "launcher"},
			Spec:       corev1.PodSpec{NodeName: "node1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}},
		Claims: map[string]*corev1.PersistentVolumeClaim{"c": {
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}},
	}
}

func volumeIn(phase v1.VolumePhase, uid types.UID) *v1.VolumeStatus {
	return &v1.VolumeStatus{
		Name: "data", Phase: phase,
		HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: "hp-" + string(uid), AttachPodUID: uid},
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
	}
}

func attachPod(uid types.UID, runs bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "hp-" + string(uid), UID: uid}}
	if runs {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}
	}
	return pod
}

func TestPlug(t *testing.T) {
	deleted := attachPod("a", true)
	deleted.DeletionTimestamp = &metav1.Time{}
	ended := attachPod("a", false)
	ended.Status.Phase = corev1.PodFailed
	incomplete := map[string]string{uploads.AnnotationState: uploads.Encode(uploads.State{Phase: uploads.Failed})}
	for name, tc := range map[string]struct {
		status *v1.VolumeStatus
		change func(*View)
		pods   []*corev1.Pod
		// What is expected: the phase ("-": no status), attachment pods made and deleted.
		phase           v1.VolumePhase
		creates         bool
		deletes         []string
		reason, message string
	}{
		"new": {phase: v1.VolumeBound, reason: hotplug.ReasonMissingAttachmentPod},
		"announced": {
			status: &v1.VolumeStatus{Name: "data", Phase: v1.VolumePending, HotplugVolume: &v1.HotplugVolumeStatus{}},
			phase:  v1.VolumeBound, creates: true,
		},
		"no claim": {
			change: func(v *View) { v.Claims = nil }, phase: v1.VolumePending, reason: ReasonPVCNotReady,
			message: `PersistentVolumeClaim "c" does not exist in namespace "ns"`,
		},
		"an image is uploaded": {
			change: func(v *View) {
				v.Claims["c"].Annotations = map[string]string{
					uploads.AnnotationRequest: uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 1}),
				}
			},
			phase: v1.VolumeBound, reason: names.ReasonUploadIncomplete,
			message: `an image is being uploaded to PersistentVolumeClaim "c"`,
		},
		"an image was uploaded in part": {
			status: &v1.VolumeStatus{Name: "data", Phase: v1.VolumePending, HotplugVolume: &v1.HotplugVolumeStatus{}},
			change: func(v *View) { v.Claims["c"].Annotations = incomplete },
			phase:  v1.VolumeBound, reason: names.ReasonUploadIncomplete, message: uploads.Unusable("c", incomplete),
		},
		"ready, pod lost, and it says that an image was uploaded in part": {
			status: volumeIn(v1.VolumeReady, "a"), change: func(v *View) { v.Claims["c"].Annotations = incomplete },
			phase: v1.VolumeReady, creates: true,
		},
		"pod starts": {
			status: volumeIn(v1.VolumeBound, "a"), pods: []*corev1.Pod{attachPod("a", false)}, phase: v1.VolumeBound,
			reason: hotplug.ReasonAttachmentPodNotReady, message: "Waiting for attachment pod hp-a to run",
		},
		"pod runs": {
			status: volumeIn(v1.VolumeBound, "a"), pods: []*corev1.Pod{attachPod("a", true)},
			phase: v1.HotplugVolumeAttachedToNode, reason: ReasonSuccessfulCreate,
			message: "Created hotplug attachment pod hp-a, for volume data",
		},
		"ready": {
			status: volumeIn(v1.VolumeReady, "a"), pods: []*corev1.Pod{attachPod("a", true)}, phase: v1.VolumeReady,
		},
		"ready, pod lost": {status: volumeIn(v1.VolumeReady, "a"), phase: v1.VolumeReady, creates: true},
		"pod ended": {
			status: volumeIn(v1.VolumeReady, "a"), pods: []*corev1.Pod{ended}, phase: v1.VolumeReady,
			deletes: []string{"hp-a"},
		},
		"stray": {
			status: volumeIn(v1.VolumeReady, "a"), pods: []*corev1.Pod{attachPod("a", true), attachPod("b", true)},
			phase: v1.VolumeReady, deletes: []string{"hp-b"},
		},
		"removed": {
			status: volumeIn(v1.VolumeReady, "a"), pods: []*corev1.Pod{attachPod("a", true)},
			change: func(v *View) { v.VMI.Spec.Volumes = nil },
			phase:  v1.HotplugVolumeDetaching, message: "Deleting volume from guest",
		},
		"removed early": {
			status: volumeIn(v1.VolumeBound, "a"), pods: []*corev1.Pod{attachPod("a", false)},
			change: func(v *View) { v.VMI.Spec.Volumes = nil },
			phase:  v1.HotplugVolumeUnMounted, deletes: []string{"hp-a"},
		},
		"detaching": {
			status: volumeIn(v1.HotplugVolumeDetaching, "a"), pods: []*corev1.Pod{attachPod("a", true)},
			phase: v1.HotplugVolumeDetaching,
		},
		"unmounted": {
			status: volumeIn(v1.HotplugVolumeUnMounted, "a"), pods: []*corev1.Pod{attachPod("a", true)},
			phase: v1.HotplugVolumeUnMounted, deletes: []string{"hp-a"},
		},
		"pod goes": {
			status: volumeIn(v1.HotplugVolumeUnMounted, "a"), pods: []*corev1.Pod{deleted},
			phase: v1.HotplugVolumeUnMounted,
		},
		"gone": {
			status: volumeIn(v1.HotplugVolumeUnMounted, "a"), change: func(v *View) { v.VMI.Spec.Volumes = nil },
			phase: "-",
		},
		"another claim": {
			status: volumeIn(v1.VolumeReady, "a"), pods: []*corev1.Pod{attachPod("a", true)},
			change: func(v *View) { v.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "d" },
			phase:  v1.HotplugVolumeDetaching,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugged(tc.status)
			view.Attachments = tc.pods
			if tc.change != nil {
				tc.change(&view)
			}
			step := Next(view)
			phase, reason, message := v1.VolumePhase("-"), "", ""
			for _, s := range step.Status.VolumeStatus {
				phase, reason, message = s.Phase, s.Reason, s.Message
			}
			if phase != tc.phase || tc.reason != "" && reason != tc.reason ||
				tc.message != "" && message != tc.message {
				t.Errorf("status is %q %q %q, want %q %q %q", phase, reason, message, tc.phase, tc.reason, tc.message)
			}
			if creates := len(step.CreateAttachments) > 0; creates != tc.creates {
				t.Errorf("creates: %v", step.CreateAttachments)
			}
			var deletes []string
			for _, pod := range step.DeleteAttachments {
				deletes = append(deletes, pod.Name)
			}
			if !slices.Equal(deletes, tc.deletes) {
				t.Errorf("deletes %v, want %v", deletes, tc.deletes)
			}
		})
	}
}

// An attachment pod holds one claim, on the launcher's node, as Pod Security `restricted` wants it.
func TestAttachment(t *testing.T) {
	view := plugged(nil)
	// The taints are those that the launcher tolerates, whatever the VMI says for its next pod.
	view.VMI.Spec.Tolerations = []corev1.Toleration{{Key: "later"}}
	view.Pods[0].Spec.Tolerations = []corev1.Toleration{{Key: "now"}}
	pod := Attachment(view.VMI, []string{"data"}, view.Pods[0], Facts{Image: "launcher", Claims: view.Claims})
	if got := pod.Spec.Tolerations; len(got) != 1 || got[0].Key != "now" {
		t.Errorf("it tolerates %+v", got)
	}
	container := pod.Spec.Containers[0]
	if len(container.VolumeMounts) != 1 || container.VolumeMounts[0].MountPath != "/volumes/data" ||
		len(container.VolumeDevices) != 0 {
		t.Errorf("filesystem: %+v, %+v", container.VolumeMounts, container.VolumeDevices)
	}
	if owner := life.LauncherOf(pod); owner == nil || owner.UID != "launcher" {
		t.Errorf("owner %+v", owner)
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	fields := required.NodeSelectorTerms[0].MatchFields
	if len(fields) != 1 || !slices.Equal(fields[0].Values, []string{"node1"}) {
		t.Errorf("node %+v", fields)
	}
	block := corev1.PersistentVolumeBlock
	view.Claims["c"].Spec.VolumeMode = &block
	container = Attachment(view.VMI, []string{"data"}, view.Pods[0], Facts{Claims: view.Claims}).Spec.Containers[0]
	if len(container.VolumeDevices) != 1 || container.VolumeDevices[0].DevicePath != "/dev/virtkit-block/data" ||
		len(container.VolumeMounts) != 0 {
		t.Errorf("block: %+v, %+v", container.VolumeMounts, container.VolumeDevices)
	}
}

// While a plugged-in disk is copied to claim new, its guest keeps the claim that it has: it is not unplugged, its
// status does not change, and an attachment pod that is lost is made anew with that claim. Without the annotation the
// disk is unplugged.
func TestPlugCopied(t *testing.T) {
	view := plugged(volumeIn(v1.VolumeReady, "a"))
	view.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "new"
	view.Claims["new"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	view.Facts.Claims = view.Claims
	replaced := Step{Status: *view.VMI.Status.DeepCopy()}
	replaced.plug(view)
	if phase := replaced.Status.VolumeStatus[0].Phase; phase != v1.HotplugVolumeDetaching {
		t.Errorf("replaced: %s", phase)
	}
	view.VMI.Annotations = map[string]string{hotplug.CopiesAnnotation: `{"data":{"from":"c","to":"new"}}`}
	if got := claimNames(view.VMI); !slices.Equal(got, []string{"new", "c"}) {
		t.Errorf("the VMI has claims %v", got)
	}
	step := Step{Status: *view.VMI.Status.DeepCopy()}
	step.plug(view)
	if s := step.Status.VolumeStatus[0]; s.Phase != v1.VolumeReady || s.PersistentVolumeClaimInfo.ClaimName != "c" {
		t.Errorf("copied: %+v", s)
	}
	if !slices.Equal(step.CreateAttachments, []string{"data"}) {
		t.Fatalf("attachment pods of %v are made", step.CreateAttachments)
	}
	step.plan(view)
	if got := step.Attachments[0].Pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName; got != "c" {
		t.Errorf("the attachment pod has claim %s", got)
	}
}

// An attachment pod that was made in a pass whose status another's write outran serves the volume in the next one:
// there is no second.
func TestPlugUnnamed(t *testing.T) {
	view := plugged(&v1.VolumeStatus{Name: "data", Phase: v1.VolumeBound, Reason: hotplug.ReasonMissingAttachmentPod})
	pod := attachPod("a", true)
	pod.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(view.Pods[0], corev1.SchemeGroupVersion.WithKind("Pod")),
	}
	view.Attachments, view.Unnamed = []*corev1.Pod{pod}, map[string]*corev1.Pod{"data": pod}
	step := Next(view)
	if len(step.CreateAttachments)+len(step.DeleteAttachments) > 0 {
		t.Errorf("makes %v, deletes %v", step.CreateAttachments, step.DeleteAttachments)
	}
	status := step.Status.VolumeStatus[0]
	if status.HotplugVolume.AttachPodUID != "a" || status.HotplugVolume.AttachPodName != "hp-a" ||
		status.Phase != v1.HotplugVolumeAttachedToNode {
		t.Errorf("status %+v, %+v", status, status.HotplugVolume)
	}
}
