package migrationcontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// situation is a migration from node01 to node02, in the state in which the guest moves; change makes others of it.
func situation(changes ...func(*View)) View {
	view := View{
		Migration: &v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "m", UID: "mig",
				Finalizers: []string{v1.VirtualMachineInstanceMigrationFinalizer},
			},
			Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: "vm"},
			Status: v1.VirtualMachineInstanceMigrationStatus{
				Phase: v1.MigrationRunning,
				PhaseTransitionTimestamps: []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
					{
						Phase:                    v1.MigrationPreparingTarget,
						PhaseTransitionTimestamp: metav1.NewTime(now.Add(-time.Minute)),
					},
				},
			},
		},
		VMI: &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "vm", UID: "vmi",
				Labels: map[string]string{v1.MigrationTargetNodeNameLabel: "node02"},
			},
			Status: v1.VirtualMachineInstanceStatus{
				Phase: v1.Running, NodeName: "node01",
				ActivePods: map[types.UID]string{"source": "node01", "target": "node02"},
				MigrationState: &v1.VirtualMachineInstanceMigrationState{
					MigrationUID: "mig", SourceNode: "node01", TargetNode: "node02", TargetPod: "target",
					TargetNodeAddress: "10.0.0.2", StartTimestamp: &metav1.Time{Time: now},
				},
			},
		},
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "target", UID: "target", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
			},
			Spec:   corev1.PodSpec{NodeName: "node02"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		},
		SourcePod: "source", Now: now,
	}
	for _, change := range changes {
		change(&view)
	}
	return view
}

func state0(view *View) *v1.VirtualMachineInstanceMigrationState {
	return view.VMI.Status.MigrationState
}

// followed has the migration say what its VMI says.
func followed(view *View) { view.Migration.Status.MigrationState = state0(view).DeepCopy() }

// Changes of the situation.
func fresh(view *View) {
	view.Migration.Status = v1.VirtualMachineInstanceMigrationStatus{}
	view.VMI.Status.MigrationState, view.VMI.Labels, view.Pod = nil, nil, nil
	view.VMI.Status.ActivePods = map[types.UID]string{"source": "node01"}
}

func scheduling(view *View) {
	pod := view.Pod
	fresh(view)
	view.Migration.Status.Phase = v1.MigrationScheduling
	view.Pod = pod
}

func withoutNode(view *View) { view.Pod.Spec.NodeName, view.Pod.Status.Phase = "", corev1.PodPending }

func lostTarget(view *View) { view.TargetLost = silence(nil, "node02") }

func preparing(view *View) {
	view.Migration.Status.Phase = v1.MigrationPreparingTarget
	state0(view).TargetNodeAddress, state0(view).StartTimestamp = "", nil
}

func ready(view *View) { state0(view).StartTimestamp = nil }

func podGone(view *View) { view.Pod = nil }

// uncreated: virt-controller was killed after it had created the pod.
func uncreated(view *View) {
	view.Uncreated = true
	view.Migration.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
		{Phase: v1.MigrationScheduling, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-time.Second))},
	}
}

func podDone(view *View) { view.Pod.Status.Phase = corev1.PodFailed }

func deleted(view *View) { view.Migration.DeletionTimestamp = &metav1.Time{Time: now} }

func succeeded(view *View) {
	state0(view).EndTimestamp, state0(view).Completed = &metav1.Time{Time: now}, true
	view.VMI.Status.NodeName = "node02"
}

func failed(view *View) {
	state0(view).EndTimestamp, state0(view).Completed, state0(view).Failed = &metav1.Time{Time: now}, true, true
	state0(view).FailureReason = "the network is down"
}

func later(by time.Duration) func(*View) { return func(view *View) { view.Now = now.Add(by) } }

func final(phase v1.VirtualMachineInstanceMigrationPhase) func(*View) {
	return func(view *View) { view.Migration.Status.Phase = phase }
}

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		changes []func(*View)
		phase   v1.VirtualMachineInstanceMigrationPhase
		reason  string // why it failed
		does    string // what else, in words
	}{
		"new":            {[]func(*View){fresh}, v1.MigrationScheduling, "", "create"},
		"new, must wait": {[]func(*View){fresh, func(v *View) { v.Wait = "others" }}, v1.MigrationPending, "", ""},
		"new, not running yet": {
			[]func(*View){fresh, func(v *View) { v.VMI.Status.Phase = v1.Scheduled }}, v1.MigrationPending, "", "",
		},
		"new, cannot move": {
			[]func(*View){fresh, notMigratable},
			v1.MigrationFailed,
			"Cannot migrate VMI, Reason: DisksNotLiveMigratable", "",
		},
		"new, its disks wait for a claim": {
			[]func(*View){fresh, waiting},
			v1.MigrationFailed,
			"Cannot migrate VMI, Reason: VolumesChangeWaiting, Message: small", "",
		},
		"new, on a claim of one node": {[]func(*View){fresh, tied}, v1.MigrationFailed, "Claim a cannot be used", ""},
		"no node yet, cannot move": {
			[]func(*View){scheduling, withoutNode, notMigratable}, v1.MigrationFailed, "DisksNotLiveMigratable", "",
		},
		"the pod has a node, cannot move": {
			[]func(*View){scheduling, notMigratable}, v1.MigrationFailed, "DisksNotLiveMigratable", "",
		},
		"the pod has a node, on a claim of one node": {
			[]func(*View){scheduling, tied}, v1.MigrationFailed, "Claim a cannot be used", "",
		},
		"killed before it recorded the pod, cannot move": {
			[]func(*View){scheduling, podGone, uncreated, notMigratable},
			v1.MigrationFailed,
			"DisksNotLiveMigratable", "",
		},
		"preparing, cannot move": {
			[]func(*View){preparing, notMigratable}, v1.MigrationFailed, "DisksNotLiveMigratable", "vmi show",
		},
		// The source looks itself.
		"ready, cannot move":   {[]func(*View){ready, notMigratable}, v1.MigrationTargetReady, "", "show"},
		"running, cannot move": {[]func(*View){notMigratable}, v1.MigrationRunning, "", "show"},
		"new, no finalizer": {
			[]func(*View){fresh, func(v *View) { v.Migration.Finalizers = nil }}, "", "", "finalizer",
		},
		"new, cancelled": {[]func(*View){fresh, deleted}, v1.MigrationFailed, "cancelled before it began", ""},
		"new, no VMI": {
			[]func(*View){fresh, func(v *View) { v.VMI = nil }}, v1.MigrationFailed, "does not exist", "",
		},
		"new, the VMI is going": {
			[]func(*View){fresh, func(v *View) { v.VMI.DeletionTimestamp = &metav1.Time{Time: now} }},
			v1.MigrationFailed, "was deleted", "",
		},
		"no node yet": {[]func(*View){scheduling, withoutNode}, v1.MigrationScheduling, "", ""},
		"no node in time": {
			[]func(*View){scheduling, withoutNode, later(5 * time.Minute)},
			v1.MigrationFailed, "no node takes its pod",
			"",
		},
		"the pod vanished": {[]func(*View){scheduling, podGone}, v1.MigrationFailed, "its pod was deleted", ""},
		"killed before it recorded the pod": {
			[]func(*View){scheduling, podGone, uncreated}, v1.MigrationScheduling, "", "create",
		},
		"killed, and no time is left": {
			[]func(*View){scheduling, podGone, uncreated, later(5 * time.Minute)},
			v1.MigrationFailed,
			"its pod could not be created", "",
		},
		"the pod failed":     {[]func(*View){scheduling, podDone}, v1.MigrationFailed, "its pod target has ended", ""},
		"the pod has a node": {[]func(*View){scheduling}, v1.MigrationScheduled, "", "vmi show"},
		"preparing":          {[]func(*View){preparing}, v1.MigrationPreparingTarget, "", "show"},
		"preparing, too long": {
			[]func(*View){preparing, later(5 * time.Minute)}, v1.MigrationFailed, "was not ready", "vmi show",
		},
		"preparing, the pod failed": {
			[]func(*View){preparing, podDone}, v1.MigrationFailed, "its pod target has ended", "vmi show",
		},
		"preparing, cancelled": {
			[]func(*View){preparing, deleted}, v1.MigrationFailed, "cancelled before it began", "vmi show",
		},
		"ready": {[]func(*View){ready}, v1.MigrationTargetReady, "", "show"},
		// From here on the source's node decides: it may have begun.
		"ready, the pod failed":     {[]func(*View){ready, podDone}, v1.MigrationTargetReady, "", "show"},
		"ready, cancelled":          {[]func(*View){ready, deleted}, v1.MigrationTargetReady, "", "vmi show"},
		"running":                   {nil, v1.MigrationRunning, "", "show"},
		"running, the pod vanished": {[]func(*View){podGone}, v1.MigrationRunning, "", "show"},
		"running, cancelled":        {[]func(*View){deleted}, v1.MigrationRunning, "", "vmi show"},
		"running, target lost":      {[]func(*View){lostTarget}, v1.MigrationRunning, "", "vmi show"},
		"running, target lost, known": {
			[]func(*View){lostTarget, func(v *View) { state0(v).AbortRequested = true }},
			v1.MigrationRunning, "",
			"show",
		},
		"preparing, target lost": {
			[]func(*View){preparing, lostTarget}, v1.MigrationFailed, "does not exist", "vmi show",
		},
		"running, cancelled twice": {
			[]func(*View){deleted, func(v *View) { state0(v).AbortRequested = true }}, v1.MigrationRunning, "", "show",
		},
		"running, the guest ended": {
			[]func(*View){func(v *View) { v.VMI.Status.Phase = v1.Succeeded }},
			v1.MigrationFailed,
			"the guest has ended", "",
		},
		"followed, and the guest ended": {
			[]func(*View){followed, func(v *View) { v.VMI.Status.Phase = v1.Failed }},
			v1.MigrationFailed,
			"the guest has ended", "",
		},
		"followed, failed without a reason, and the guest ended": {
			[]func(*View){failed, followed, func(v *View) {
				state0(v).FailureReason, v.VMI.Status.Phase = "", v1.Failed
			}},
			v1.MigrationFailed,
			"the guest has ended", "",
		},
		"succeeded":     {[]func(*View){succeeded}, v1.MigrationSucceeded, "", "show release"},
		"failed":        {[]func(*View){failed}, v1.MigrationFailed, "the network is down", "show"},
		"after success": {[]func(*View){succeeded, final(v1.MigrationSucceeded)}, v1.MigrationSucceeded, "", "release"},
		"after failure": {
			[]func(*View){failed, final(v1.MigrationFailed)}, v1.MigrationFailed, "", "vmi hide delete release",
		},
		"after failure, pod gone": {
			[]func(*View){failed, final(v1.MigrationFailed), podGone}, v1.MigrationFailed, "", "hide release",
		},
		// Whatever was thought, the pod with the guest in it is not touched.
		"after failure, but moved": {
			[]func(*View){failed, succeeded, final(v1.MigrationFailed)}, v1.MigrationFailed, "", "release",
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := situation(tc.changes...)
			step := Next(view)
			if step.Status.Phase != tc.phase {
				t.Errorf("phase %q, want %q", step.Status.Phase, tc.phase)
			}
			if tc.reason != "" {
				if got := step.Status.MigrationState; got == nil || !got.Failed ||
					!strings.Contains(got.FailureReason, tc.reason) {
					t.Errorf("state %+v, want reason %q", got, tc.reason)
				}
				if len(step.Events) != 1 || step.Events[0].Reason != ReasonFailedMigration ||
					!strings.Contains(step.Events[0].Message, tc.reason) {
					t.Errorf("events %+v", step.Events)
				}
			}
			var does []string
			for _, d := range []struct {
				word string
				is   bool
			}{
				{"finalizer", step.AddFinalizer},
				{"create", step.CreatePod},
				{"vmi", step.VMIStatus != nil},
				{"show", step.showTo == "node02"},
				{"hide", step.hide},
				{"delete", step.DeletePod},
				{"release", step.RemoveFinalizer},
			} {
				if d.is {
					does = append(does, d.word)
				}
			}
			if got := strings.Join(does, " "); got != tc.does {
				t.Errorf("does %q, want %q", got, tc.does)
			}
		})
	}
}

// tied has the guest use a claim that one node can use; its node has not said so yet.
func tied(view *View) {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = "a"
	view.VMI.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}}
	view.VMI.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "root", Size: 1, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a"},
	}}
	view.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
	}
}

// waiting has the VMI name a claim to which its disk cannot be copied.
func waiting(view *View) {
	tied(view)
	view.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "small"
	view.VMI.Status.Conditions = append(view.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: volumemigration.Condition, Status: corev1.ConditionTrue, Reason: volumemigration.ReasonWaiting,
		Message: "small",
	})
}

func notMigratable(view *View) {
	view.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse,
		Reason: v1.VirtualMachineInstanceReasonDisksNotMigratable, Message: "volume a",
	}}
}

// What the VMI is told when the pod has a node, and when the migration ends.
func TestNextVMI(t *testing.T) {
	begun := Next(situation(scheduling)).VMIStatus
	if ms := begun.MigrationState; ms.MigrationUID != "mig" || ms.SourceNode != "node01" || ms.SourcePod != "source" ||
		ms.TargetNode != "node02" || ms.TargetPod != "target" {
		t.Errorf("migrationState %+v", ms)
	}
	if begun.ActivePods["target"] != "node02" || begun.ActivePods["source"] != "node01" {
		t.Errorf("activePods %v", begun.ActivePods)
	}
	cancelled := Next(situation(deleted)).VMIStatus.MigrationState
	if !cancelled.AbortRequested || cancelled.AbortStatus != v1.MigrationAbortInProgress || cancelled.Failed {
		t.Errorf("cancelled while it runs: %+v", cancelled)
	}
	early := Next(situation(preparing, deleted)).VMIStatus.MigrationState
	if early.AbortStatus != v1.MigrationAbortSucceeded || !early.Failed || early.EndTimestamp == nil {
		t.Errorf("cancelled before it began: %+v", early)
	}
	if ok := Next(situation(succeeded)); ok.VMIStatus != nil && ok.VMIStatus.MigrationState.AbortStatus != "" {
		t.Errorf("nobody has cancelled it: %+v", ok.VMIStatus.MigrationState)
	}
	aborting := func(view *View) {
		state0(view).AbortRequested, state0(view).AbortStatus = true, v1.MigrationAbortInProgress
	}
	for name, over := range map[string]func(*View){"too late": succeeded, "failed by itself": failed} {
		step := Next(situation(over, aborting, deleted))
		if step.VMIStatus == nil || step.VMIStatus.MigrationState.AbortStatus != v1.MigrationAbortFailed ||
			step.Status.MigrationState.AbortStatus != v1.MigrationAbortFailed {
			t.Errorf("%s: %+v", name, step)
		}
	}
	if tidied := Next(situation(failed, final(v1.MigrationFailed))).VMIStatus; len(tidied.ActivePods) != 1 {
		t.Errorf("activePods %v", tidied.ActivePods)
	}
}

// A pod is a migration's if virt-controller created it for that. Whoever may make pods can give one the name, the
// labels and the owner of a migration's target, and have the guest's memory sent there.
func TestIsTarget(t *testing.T) {
	view := situation()
	pod := view.Pod
	pod.Name = PodName(view.Migration, view.VMI)
	pod.Labels = map[string]string{v1.MigrationJobLabel: "mig"}
	is := func(created map[types.UID]string) bool { return isTarget(view.Migration, view.VMI, created, pod) }
	if !is(nil) {
		t.Error("the recorded one is not taken")
	}
	view.VMI.Status.ActivePods = nil
	if is(nil) || is(map[types.UID]string{"target": "another"}) || is(map[types.UID]string{"other": "mig"}) {
		t.Error("one that nobody created for the migration is taken")
	}
	if !is(map[types.UID]string{"target": "mig"}) {
		t.Error("the one that was created is not taken")
	}
}

func TestPod(t *testing.T) {
	migration := situation().Migration
	migration.Spec.AddedNodeSelector = map[string]string{"zone": "b", corev1.LabelArchStable: "arm64"}
	instance := situation().VMI
	instance.Spec.Domain.Devices.DisableHotplug = true
	instance.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}},
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "b", Operator: corev1.NodeSelectorOpExists}}},
			},
		},
	}}
	facts := vmicontroller.Facts{Image: "launcher", Config: config.Config{Architecture: "amd64"}}
	pod := Pod(migration, instance, facts)
	if pod.Name == vmicontroller.PodName(instance) || pod.Labels[v1.MigrationJobLabel] != "mig" ||
		pod.Annotations[v1.MigrationJobNameAnnotation] != "m" {
		t.Errorf("metadata %+v", pod.ObjectMeta)
	}
	if _, labelled := pod.Labels[v1.MigrationTargetNodeNameLabel]; labelled {
		t.Error("the pod has a label that is the VMI's")
	}
	if s := pod.Spec.NodeSelector; s["zone"] != "b" || s[corev1.LabelArchStable] != "amd64" {
		t.Errorf("nodeSelector %v", s)
	}
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for _, term := range terms {
		if len(term.MatchExpressions) != 1 || len(term.MatchFields) != 1 || term.MatchFields[0].Values[0] != "node01" {
			t.Errorf("term %+v", term)
		}
	}
	if len(terms) != 2 {
		t.Errorf("terms %+v", terms)
	}
	own := instance.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if got := own.NodeSelectorTerms[0].MatchFields; len(got) != 0 {
		t.Errorf("the VMI itself was changed: %+v", got)
	}
}

func TestLabel(t *testing.T) {
	for name, tc := range map[string]struct {
		step Step
		has  string
		want *string
	}{
		"nothing to say":      {Step{}, "node02", nil},
		"to be shown":         {Step{showTo: "node02"}, "", new("node02")},
		"is shown":            {Step{showTo: "node02"}, "node02", nil},
		"shown to another":    {Step{showTo: "node02"}, "node03", new("node02")},
		"to be hidden":        {Step{hide: true}, "node02", new("")},
		"is hidden":           {Step{hide: true}, "", nil},
		"hidden all the same": {Step{showTo: "node02", hide: true}, "node02", new("")},
	} {
		view := situation(func(view *View) {
			view.VMI.Labels = map[string]string{v1.MigrationTargetNodeNameLabel: tc.has}
			if tc.has == "" {
				view.VMI.Labels = nil
			}
		})
		tc.step.label(view)
		if got := tc.step.TargetLabel; (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
