package vmicontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// TestExpand has a claim of a running guest expanded: the status follows the claim, the kubelet is asked once, and the
// condition is handed over to virt-handler.
func TestExpand(t *testing.T) {
	onNode := []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue},
	}
	const works = `volume "data": claim c grows from 1Gi to 2Gi: the storage works on it`
	const pending = `volume "data": claim c grows from 1Gi to 2Gi: the node is to make its file system larger`
	const handed = "The guest's disks get the sizes of their claims."
	for name, tc := range map[string]struct {
		knows             string // the capacity in the status
		requests, has     string
		conditions        []corev1.PersistentVolumeClaimCondition
		reason            string // of the condition before
		asked             string // of the kubelet, before
		change            func(*View)
		capacity          string // in the status after
		wantReason, wants string
		asks              string
	}{
		"nothing": {knows: "1Gi", requests: "1Gi", has: "1Gi", capacity: "1Gi"},
		"requested": {
			knows: "1Gi", requests: "2Gi", has: "1Gi",
			capacity: "1Gi", wantReason: expansion.ReasonStorage, wants: works,
		},
		"on the node": {
			knows: "1Gi", requests: "2Gi", has: "1Gi", conditions: onNode, reason: expansion.ReasonStorage,
			capacity: "1Gi", wantReason: expansion.ReasonStorage, wants: pending, asks: "c=2Gi",
		},
		"on the node, asked": {
			knows: "1Gi", requests: "2Gi", has: "1Gi", conditions: onNode,
			reason: expansion.ReasonStorage, asked: "c=2Gi",
			capacity: "1Gi", wantReason: expansion.ReasonStorage, wants: pending,
		},
		"on the node, asked for less": {
			knows: "1Gi", requests: "2Gi", has: "1Gi", conditions: onNode,
			reason: expansion.ReasonStorage, asked: "c=1Gi",
			capacity: "1Gi", wantReason: expansion.ReasonStorage, wants: pending, asks: "c=2Gi",
		},
		"the storage is done": {
			knows: "1Gi", requests: "2Gi", has: "2Gi", reason: expansion.ReasonStorage,
			capacity: "2Gi", wantReason: expansion.ReasonGuest, wants: handed,
		},
		"at once": {
			knows: "1Gi", requests: "2Gi", has: "2Gi",
			capacity: "2Gi", wantReason: expansion.ReasonGuest, wants: "The guest's disks get the sizes of claims c.",
		},
		"taken back": {
			knows: "1Gi", requests: "1Gi", has: "1Gi", reason: expansion.ReasonStorage,
			capacity: "1Gi", wantReason: expansion.ReasonGuest, wants: handed,
		},
		"virt-handler's": {
			knows: "2Gi", requests: "2Gi", has: "2Gi", reason: expansion.ReasonGuest,
			capacity: "2Gi", wantReason: expansion.ReasonGuest, wants: "as before",
		},
		"moving": {
			knows: "1Gi", requests: "2Gi", has: "2Gi", capacity: "1Gi",
			change: func(view *View) {
				view.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{TargetPod: "there"}
			},
		},
		"the claim is gone": {
			knows: "1Gi", requests: "2Gi", has: "2Gi", capacity: "1Gi", change: func(view *View) { view.Claims = nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := plugged(volumeIn(v1.VolumeReady, "a"))
			view.Attachments = []*corev1.Pod{attachPod("a", true)}
			if tc.asked != "" {
				view.Attachments[0].Annotations = map[string]string{names.AnnotationExpanding: tc.asked}
			}
			claim := view.Claims["c"]
			claim.Spec.Resources.Requests = storage(tc.requests)
			claim.Status.Capacity, claim.Status.Conditions = storage(tc.has), tc.conditions
			view.VMI.Status.VolumeStatus[0].PersistentVolumeClaimInfo.Capacity = storage(tc.knows)
			if tc.reason != "" {
				view.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
					Type: expansion.Condition, Status: corev1.ConditionTrue, Reason: tc.reason, Message: "as before",
				}}
			}
			if tc.change != nil {
				tc.change(&view)
			}
			step := Next(view)
			capacity := step.Status.VolumeStatus[0].PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
			if got := capacity.String(); got != tc.capacity {
				t.Errorf("capacity %s, want %s", got, tc.capacity)
			}
			c := conditions.Find(step.Status.Conditions, expansion.Condition)
			if c == nil {
				c = &v1.VirtualMachineInstanceCondition{}
			}
			if c.Reason != tc.wantReason || c.Message != tc.wants {
				t.Errorf("%s: %s, want %s: %s", c.Reason, c.Message, tc.wantReason, tc.wants)
			}
			asks := ""
			for _, e := range step.Expansions {
				asks += e.Claims
				if e.Pod != view.Attachments[0] {
					t.Errorf("asks the kubelet of pod %s", e.Pod.Name)
				}
			}
			if asks != tc.asks {
				t.Errorf("asks the kubelet for %q, want %q", asks, tc.asks)
			}
		})
	}
}

// TestExpandAtStart: the kubelet of a guest's own pod is asked for a volume that the guest was started with.
func TestExpandAtStart(t *testing.T) {
	view := plugged(&v1.VolumeStatus{
		Name:                      "data",
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c", Capacity: storage("1Gi")},
	})
	view.VMI.Spec.Volumes[0].PersistentVolumeClaim.Hotpluggable = false
	view.Claims["c"].Spec.Resources.Requests = storage("2Gi")
	view.Claims["c"].Status.Capacity = storage("1Gi")
	view.Claims["c"].Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending,
	}
	step := Next(view)
	if len(step.Expansions) != 1 || step.Expansions[0].Pod != view.Pods[0] || step.Expansions[0].Claims != "c=2Gi" {
		t.Errorf("%+v", step.Expansions)
	}
}

// TestExpandAmidACopy: while a disk is copied to another claim, the guest has nothing of an expansion of the one that
// it leaves, and the VMI says nothing of it; docs/volumes.md tells so. When the spec names that claim again, it has.
func TestExpandAmidACopy(t *testing.T) {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}}
	vmi.Status.Phase = v1.Running
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "old", Capacity: storage("1Gi"), Requests: storage("1Gi"),
		},
	}}
	all := map[string]*corev1.PersistentVolumeClaim{"old": {}, "new": {}}
	for name, claim := range all {
		claim.Name, claim.Status.Capacity = name, storage("1Gi")
		claim.Spec.Resources.Requests = storage("2Gi")
	}
	for name, grows := range map[string]bool{"new": false, "old": true} {
		source.ClaimName = name
		view := View{VMI: vmi, Claims: map[string]*corev1.PersistentVolumeClaim{}}
		for _, claim := range claimNames(vmi) {
			view.Claims[claim] = all[claim]
		}
		step := Step{Status: *vmi.Status.DeepCopy()}
		step.expand(view)
		if c := conditions.Find(step.Status.Conditions, expansion.Condition); (c != nil) != grows {
			t.Errorf("the spec names %s: %+v", name, c)
		}
	}
}
