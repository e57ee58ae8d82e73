package migrationcontroller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// loaded gives the VMI a hotplugged volume in a phase.
func loaded(phase v1.VolumePhase) func(*View) {
	return func(view *View) {
		view.VMI.Spec.Volumes = []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				Hotpluggable:                      true,
			}}},
		}
		view.VMI.Status.VolumeStatus = []v1.VolumeStatus{
			{Name: "data", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodUID: "old"}},
		}
	}
}

// held gives the migration's pod an attachment pod.
func held(state corev1.ContainerState, volumes ...string) func(*View) {
	return func(view *View) {
		view.Attachments = append(view.Attachments, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: hotplug.TargetAttachment("mig", volumes), UID: "attachment",
				Annotations: map[string]string{
					names.AnnotationClaims: volumemigration.PluggedFingerprint(&view.VMI.Spec, volumes),
				},
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: state}},
			},
		})
		view.Created = map[types.UID]string{"attachment": hotplug.TargetAttachment("mig", volumes)}
	}
}

// onOtherClaims has the disk of the hotplugged volume be copied to claim new.
func onOtherClaims(view *View) {
	vmi := view.VMI
	vmi.Annotations = map[string]string{hotplug.CopiesAnnotation: `{"data":{"from":"data","to":"new"}}`}
	vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "new"
	vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: "data"}
	vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{
		VolumeName: "data", SourcePVCInfo: vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo,
		DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "new"},
	}}
	view.Pod.Annotations = map[string]string{names.AnnotationClaims: volumemigration.Fingerprint(&vmi.Spec)}
}

// The pod at the target holds the claim to which a hotplugged disk is copied, which waits for no upload from then on.
func TestAttachCopied(t *testing.T) {
	view := situation(scheduling, loaded(v1.VolumeReady), onOtherClaims)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	claim.Annotations = map[string]string{
		uploads.AnnotationRequest: uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 1}),
	}
	view.Facts.Claims = map[string]*corev1.PersistentVolumeClaim{"new": claim}
	step := Next(view)
	if step.Attachment == nil || step.Attachment.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "new" {
		t.Fatalf("the attachment pod is %+v", step.Attachment)
	}
	if !slices.Equal(step.Used, vmicontroller.Used(view.Facts.Claims, step.Attachment)) {
		t.Errorf("used: %v", step.Used)
	}
	made := step.Attachment.Annotations[names.AnnotationClaims]
	if made != volumemigration.PluggedFingerprint(&view.VMI.Spec, []string{"data"}) {
		t.Errorf("it is made for %q", made)
	}
}

func late(view *View) { view.Pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) }

// The nodes hear of a migration once the claims of hotplugged volumes are where the guest goes.
func TestAttach(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: "no such volume"},
	}
	for name, test := range map[string]struct {
		changes []func(*View)
		phase   v1.VirtualMachineInstanceMigrationPhase
		attach  []string
		message string // of the failure
	}{
		"none":           {[]func(*View){scheduling}, v1.MigrationScheduled, nil, ""},
		"one that waits": {[]func(*View){scheduling, loaded(v1.VolumePending)}, v1.MigrationScheduled, nil, ""},
		"one": {
			[]func(*View){scheduling, loaded(v1.VolumeReady)}, v1.MigrationScheduling, []string{"data"}, "",
		},
		"not on the node": {
			[]func(*View){scheduling, loaded(v1.VolumeReady), held(waiting, "data")}, v1.MigrationScheduling, nil, "",
		},
		"on the node": {
			[]func(*View){scheduling, loaded(v1.VolumeReady), held(running, "data")}, v1.MigrationScheduled, nil, "",
		},
		"others, as before": {
			[]func(*View){scheduling, loaded(v1.VolumeReady), held(running, "data", "gone")},
			v1.MigrationScheduling,
			[]string{"data"},
			"",
		},
		"a tenant's, of that name": {
			[]func(*View){scheduling, loaded(v1.VolumeReady), held(running, "data"), func(v *View) { v.Created = nil }},
			v1.MigrationScheduling,
			[]string{"data"},
			"",
		},
		"being plugged": {[]func(*View){scheduling, loaded(v1.HotplugVolumeMounted)}, v1.MigrationScheduling, nil, ""},
		"plugged for ever": {
			[]func(*View){scheduling, loaded(v1.HotplugVolumeMounted), late},
			v1.MigrationFailed, nil,
			`volume "data" is being plugged in`,
		},
		"never on the node": {
			[]func(*View){scheduling, loaded(v1.VolumeReady), held(waiting, "data"), late},
			v1.MigrationFailed, nil,
			"no such volume",
		},
		"for other claims": {
			[]func(*View){
				scheduling, loaded(v1.VolumeReady), held(running, "data"),
				func(v *View) { v.Attachments[0].Annotations[names.AnnotationClaims] = "other" },
			},
			v1.MigrationFailed, nil,
			"were changed since its attachment pod",
		},
		"its disk is copied": {
			[]func(*View){scheduling, loaded(v1.VolumeReady), onOtherClaims},
			v1.MigrationScheduling,
			[]string{"data"},
			"",
		},
		"the pod has failed": {
			[]func(*View){
				scheduling, loaded(v1.VolumeReady), held(running, "data"),
				func(v *View) { v.Attachments[0].Status.Phase = corev1.PodFailed },
			},
			v1.MigrationFailed, nil, "has ended",
		},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(situation(test.changes...))
			if step.Status.Phase != test.phase || !slices.Equal(step.Attach, test.attach) {
				t.Errorf("phase %s, attach %v", step.Status.Phase, step.Attach)
			}
			if test.phase == v1.MigrationFailed &&
				!strings.Contains(step.Status.MigrationState.FailureReason, test.message) {
				t.Errorf("failed: %s", step.Status.MigrationState.FailureReason)
			}
			if test.phase == v1.MigrationScheduling && step.RequeueAfter == 0 {
				t.Error("nobody looks again")
			}
			if name == "on the node" && step.VMIStatus.MigrationState.TargetAttachmentPodUID != "attachment" {
				t.Errorf("migrationState %+v", step.VMIStatus.MigrationState)
			}
		})
	}
	failed := situation(scheduling, loaded(v1.VolumeReady), held(running, "data"))
	failed.Migration.Status.Phase = v1.MigrationFailed
	if step := Next(failed); !step.DeletePod || len(step.DeleteAttachments) != 1 {
		t.Errorf("a failed migration leaves %+v", step)
	}
}
