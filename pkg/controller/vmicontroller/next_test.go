package vmicontroller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }

// testVMI is in a phase, with its finalizer, with the pod of testPod recorded, and on node01 once it was scheduled.
func testVMI(t *testing.T, phase v1.VirtualMachineInstancePhase, change ...func(*v1.VirtualMachineInstance),
) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := parseVMI(t, "")
	vmi.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
	vmi.CreationTimestamp = at(time.Minute)
	vmi.Status.Phase = phase
	switch {
	case Scheduled(vmi):
		vmi.Status.NodeName = "node01"
		vmi.Status.ActivePods = map[types.UID]string{"pod-uid": "node01"}
	case phase == v1.Scheduling:
		vmi.Status.ActivePods = map[types.UID]string{"pod-uid": ""}
	}
	for _, change := range change {
		change(vmi)
	}
	return vmi
}

func deleted(vmi *v1.VirtualMachineInstance) {
	vmi.DeletionTimestamp = new(at(time.Second))
}

func since(phase v1.VirtualMachineInstancePhase, ago time.Duration) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
			v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: at(ago)})
	}
}

func testPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: PodName(&v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
			Name: "demo", UID: "8f2c5d0e-0a5b-4a57-9f0b-6f7d8c1e2a3b", // as parseVMI has it
		}}), UID: "pod-uid", CreationTimestamp: at(100 * time.Millisecond)},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Image: "launcher:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable},
	}
	for _, change := range change {
		change(pod)
	}
	return pod
}

// stranger is a pod that somebody has made the VMI's by its owner references.
func stranger(pod *corev1.Pod) { pod.Name, pod.UID = "stranger", "stranger" }

func bound(pod *corev1.Pod)   { pod.Spec.NodeName = "node01" }
func running(pod *corev1.Pod) { bound(pod); pod.Status.Phase = corev1.PodRunning }
func going(pod *corev1.Pod)   { pod.DeletionTimestamp = new(at(0)) }
func old(pod *corev1.Pod)     { pod.CreationTimestamp = at(time.Minute) }

func ended(phase corev1.PodPhase, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		bound(pod)
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: names.ContainerCompute, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: message},
			}},
		}
	}
}

func unschedulable(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/2 nodes",
	}}
}

// outcome is the part of a Step that the table below names.
type outcome struct {
	Phase                       v1.VirtualMachineInstancePhase
	Reason                      string
	AddFinalizer, Release       bool
	Create, Dead                bool
	Delete                      int
	NodeLabel                   string
	Again                       time.Duration
	Conditions, Events, Moments []string
}

func outcomeOf(step Step) outcome {
	out := outcome{
		Phase: step.Status.Phase, Reason: step.Status.Reason,
		AddFinalizer: step.AddFinalizer, Release: step.RemoveFinalizer,
		Create: step.CreatePod, Dead: step.Dead, Delete: len(step.DeletePods),
		NodeLabel: step.NodeLabel, Again: step.RequeueAfter,
	}
	for _, c := range step.Status.Conditions {
		out.Conditions = append(out.Conditions, string(c.Type)+"="+string(c.Status)+" "+c.Reason)
	}
	for _, e := range step.Events {
		out.Events = append(out.Events, e.Type+" "+e.Reason)
	}
	for _, m := range step.Status.PhaseTransitionTimestamps {
		out.Moments = append(out.Moments, string(m.Phase))
	}
	return out
}

func TestNext(t *testing.T) {
	const notRunning = "Ready=False " + v1.GuestNotRunningReason
	all := []string{"Pending", "Scheduling", "Scheduled"}
	withClaim := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = parseClaimVolume()
	}
	noFinalizer := func(vmi *v1.VirtualMachineInstance) { vmi.Finalizers = nil }
	reported := func(vmi *v1.VirtualMachineInstance) {
		conditions.Set(&vmi.Status.Conditions,
			notSynchronized(ReasonFailedPvcNotFound,
				`PersistentVolumeClaim "data" does not exist in namespace "default"`), now)
	}

	cases := []struct {
		name string
		view View
		want outcome
	}{
		{"new", View{VMI: testVMI(t, "")}, outcome{Create: true}},
		{"without its finalizer", View{VMI: testVMI(t, "", noFinalizer)}, outcome{AddFinalizer: true, Create: true}},
		{
			"claim missing",
			View{VMI: testVMI(t, "", withClaim)},
			outcome{
				Phase: v1.Pending, Conditions: []string{notRunning, "Synchronized=False FailedPvcNotFound"},
				Events: []string{"Warning FailedPvcNotFound"}, Moments: []string{"Pending"},
			},
		},
		{
			"claim still missing",
			View{VMI: testVMI(t, v1.Pending, withClaim, reported)},
			outcome{Phase: v1.Pending, Conditions: []string{"Synchronized=False FailedPvcNotFound", notRunning}},
		},
		{
			"claim there",
			View{
				VMI:    testVMI(t, v1.Pending, withClaim, reported),
				Claims: map[string]*corev1.PersistentVolumeClaim{"data": claimOf("data", "Block")},
			},
			outcome{Phase: v1.Pending, Create: true, Conditions: []string{"Synchronized=False FailedPvcNotFound"}},
		},
		{
			"pod fresh",
			View{VMI: testVMI(t, ""), Pods: []*corev1.Pod{testPod()}},
			outcome{Again: 900 * time.Millisecond},
		},
		{
			"pod waits",
			View{VMI: testVMI(t, ""), Pods: []*corev1.Pod{testPod(old)}},
			outcome{Phase: v1.Scheduling, Conditions: []string{notRunning}, Moments: []string{"Scheduling"}},
		},
		{
			"pod unschedulable",
			View{VMI: testVMI(t, v1.Pending, reported), Pods: []*corev1.Pod{testPod(unschedulable)}},
			outcome{
				Phase: v1.Scheduling, Conditions: []string{notRunning, "PodScheduled=False Unschedulable"},
				Moments: []string{"Scheduling"},
			},
		},
		{
			"pod bound",
			View{VMI: testVMI(t, ""), Pods: []*corev1.Pod{testPod(bound)}},
			outcome{Phase: v1.Scheduled, NodeLabel: "node01", Conditions: []string{notRunning}, Moments: all},
		},
		{
			"pod bound after it was unschedulable",
			View{
				VMI: testVMI(t, v1.Scheduling, since(v1.Pending, 3*time.Second), since(v1.Scheduling, 2*time.Second),
					func(vmi *v1.VirtualMachineInstance) {
						conditions.Set(&vmi.Status.Conditions,
							v1.VirtualMachineInstanceCondition{Type: "PodScheduled", Status: corev1.ConditionFalse},
							now)
					}),
				Pods: []*corev1.Pod{testPod(bound)},
			},
			outcome{Phase: v1.Scheduled, NodeLabel: "node01", Conditions: []string{notRunning}, Moments: all},
		},
		{
			"pod deleted while pending",
			View{VMI: testVMI(t, v1.Scheduling), Pods: []*corev1.Pod{testPod(going)}},
			outcome{
				Phase: v1.Failed, Reason: v1.PodTerminatingReason, Conditions: []string{"Ready=False PodTerminating"},
				Moments: []string{"Failed"},
			},
		},
		{
			"pod gone while pending",
			View{VMI: testVMI(t, v1.Scheduling)},
			outcome{
				Phase: v1.Failed, Reason: v1.PodNotExistsReason, Conditions: []string{"Ready=False PodNotExists"},
				Moments: []string{"Failed"},
			},
		},
		{
			"pod failed before it was scheduled",
			View{VMI: testVMI(t, v1.Scheduling), Pods: []*corev1.Pod{testPod(ended(corev1.PodFailed, "no room"))}},
			outcome{
				Phase: v1.Failed, Reason: "Error", Conditions: []string{"Ready=False Error"},
				Moments: []string{"Failed"},
			},
		},

		{
			"a stranger before its pod",
			View{VMI: testVMI(t, ""), Pods: []*corev1.Pod{testPod(running, stranger)}},
			outcome{Create: true},
		},
		{
			"a stranger stays when its pod is over",
			View{
				VMI:  testVMI(t, v1.Running),
				Pods: []*corev1.Pod{testPod(running, stranger), testPod(ended(corev1.PodFailed, ""))},
			},
			outcome{Phase: v1.Running, NodeLabel: "node01", Dead: true, Again: handlerGrace},
		},
		{
			"in a pod that it has moved to",
			View{VMI: testVMI(t, v1.Running, func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.ActivePods = map[types.UID]string{"stranger": "node01", "pod-uid": ""}
			}), Pods: []*corev1.Pod{testPod(running, stranger), testPod(ended(corev1.PodFailed, ""))}},
			outcome{Phase: v1.Running, NodeLabel: "node01"},
		},
		{
			"running",
			View{VMI: testVMI(t, v1.Running), Pods: []*corev1.Pod{testPod(running)}},
			outcome{Phase: v1.Running, NodeLabel: "node01"},
		},
		{
			"node unknown",
			View{VMI: testVMI(t, v1.Unknown), Pods: []*corev1.Pod{testPod(running)}},
			outcome{Phase: v1.Unknown, NodeLabel: "node01"},
		},
		{
			"pod over just now",
			View{VMI: testVMI(t, v1.Running), Pods: []*corev1.Pod{testPod(ended(corev1.PodFailed, ""))}},
			outcome{Phase: v1.Running, NodeLabel: "node01", Dead: true, Again: handlerGrace},
		},
		{
			"pod over a while ago",
			View{VMI: testVMI(t, v1.Running), DeadSince: now.Add(-10 * time.Second)},
			outcome{Phase: v1.Running, NodeLabel: "node01", Dead: true, Again: 5 * time.Second},
		},
		{
			"pod gone and nobody said so",
			View{VMI: testVMI(t, v1.Unknown), DeadSince: now.Add(-time.Minute)},
			outcome{
				Phase: v1.Failed, Reason: ReasonNodeUnresponsive, NodeLabel: "node01", Dead: true,
				Conditions: []string{"Ready=False NodeUnresponsive"}, Moments: []string{"Failed"},
			},
		},
		{
			"pod succeeded and nobody said so",
			View{
				VMI: testVMI(t, v1.Running), Pods: []*corev1.Pod{testPod(ended(corev1.PodSucceeded, ""))},
				DeadSince: now.Add(-time.Minute),
			},
			outcome{
				Phase: v1.Succeeded, Reason: "Error", NodeLabel: "node01", Dead: true,
				Conditions: []string{"Ready=False Error"}, Moments: []string{"Succeeded"},
			},
		},

		{
			"finished",
			View{VMI: testVMI(t, v1.Succeeded), Pods: []*corev1.Pod{testPod(ended(corev1.PodSucceeded, ""))}},
			outcome{Phase: v1.Succeeded},
		},
		{
			"finished but the launcher lingers",
			View{VMI: testVMI(t, v1.Failed, since(v1.Failed, 4*time.Second)), Pods: []*corev1.Pod{testPod(running)}},
			outcome{Phase: v1.Failed, Moments: []string{"Failed"}, Again: 6 * time.Second},
		},
		{
			"finished and the launcher stays",
			View{VMI: testVMI(t, v1.Failed, since(v1.Failed, time.Minute)), Pods: []*corev1.Pod{testPod(running)}},
			outcome{Phase: v1.Failed, Moments: []string{"Failed"}, Delete: 1},
		},

		{
			"deleted",
			View{VMI: testVMI(t, v1.Running, deleted), Pods: []*corev1.Pod{testPod(running)}},
			outcome{Phase: v1.Running, Delete: 1},
		},
		{
			"deleted, pod on its way",
			View{VMI: testVMI(t, v1.Running, deleted), Pods: []*corev1.Pod{testPod(running, going)}},
			outcome{Phase: v1.Running},
		},
		{"deleted, pod gone", View{VMI: testVMI(t, v1.Running, deleted)}, outcome{Phase: v1.Running, Release: true}},
		{"deleted before it had a pod", View{VMI: testVMI(t, "", deleted)}, outcome{Release: true}},
		{"deleted, another's finalizer left", View{VMI: testVMI(t, "", deleted, noFinalizer)}, outcome{}},
		{
			"deleted when finished",
			View{VMI: testVMI(t, v1.Failed, deleted), Pods: []*corev1.Pod{testPod(ended(corev1.PodFailed, ""))}},
			outcome{Phase: v1.Failed, Delete: 1},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.view.Now, c.view.Created = now, map[types.UID]string{"pod-uid": purposeLauncher}
			before := c.view.VMI.DeepCopy()
			step := Next(c.view)
			if diff := cmp.Diff(c.want, outcomeOf(step)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(before, c.view.VMI); diff != "" {
				t.Errorf("Next changed its input\n%s", diff)
			}
			// What was written must be what is read next time, or it is written for ever.
			c.view.VMI.Status = step.Status
			if diff := cmp.Diff(step.Status, Next(c.view).Status); diff != "" && c.view.VMI.DeletionTimestamp == nil {
				t.Errorf("not stable\n%s", diff)
			}
		})
	}
}

func parseClaimVolume() []v1.Volume {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = "data"
	return []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}}
}

// TestHandOver holds all that virt-handler and the launcher are told.
func TestHandOver(t *testing.T) {
	vmi := testVMI(t, "", func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, parseClaimVolume()...)
	})
	got := Next(View{
		VMI: vmi, Pods: []*corev1.Pod{testPod(bound)}, Created: map[types.UID]string{"pod-uid": purposeLauncher},
		Now:    now,
		Claims: map[string]*corev1.PersistentVolumeClaim{"data": claimOf("data", corev1.PersistentVolumeBlock)},
	}).Status
	if got.NodeName != "node01" || got.ActivePods["pod-uid"] != "node01" || got.RuntimeUser != 107 ||
		got.LauncherContainerImageVersion != "launcher:1" || *got.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("status %+v", got)
	}
	if len(got.VolumeStatus) != 2 || got.VolumeStatus[0].Name != "root" ||
		got.VolumeStatus[0].PersistentVolumeClaimInfo != nil {
		t.Fatalf("volumes %+v", got.VolumeStatus)
	}
	info := got.VolumeStatus[1].PersistentVolumeClaimInfo
	if info == nil || info.ClaimName != "data" || *info.VolumeMode != corev1.PersistentVolumeBlock ||
		!slices.Contains(info.AccessModes, corev1.ReadWriteOnce) || info.Capacity.Storage().String() != "1Gi" {
		t.Errorf("claim %+v", info)
	}
	if !got.PhaseTransitionTimestamps[0].PhaseTransitionTimestamp.Equal(&vmi.CreationTimestamp) {
		t.Errorf("pending since %s, want the VMI's creation", got.PhaseTransitionTimestamps[0].PhaseTransitionTimestamp)
	}
}
