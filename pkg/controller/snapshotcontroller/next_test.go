package snapshotcontroller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

func vmLockedBy(snapshot string) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "demo", UID: "v"}}
	if snapshot != "" {
		vm.Status.SnapshotInProgress = &snapshot
		vm.Finalizers = []string{snapshots.SourceFinalizer}
	}
	return vm
}

func withStatus(ready, created bool) *v1beta1.VirtualMachineSnapshotContent {
	return content(func(c *v1beta1.VirtualMachineSnapshotContent) {
		c.Status = &v1beta1.VirtualMachineSnapshotContentStatus{ReadyToUse: &ready}
		if created {
			c.Status.CreationTime = new(metav1.NewTime(now))
		}
	})
}

func inPhase(phase v1beta1.VirtualMachineSnapshotPhase, age time.Duration, deleted bool,
) *v1beta1.VirtualMachineSnapshot {
	snapshot := snapshotAged(age)
	snapshot.Status = &v1beta1.VirtualMachineSnapshotStatus{Phase: phase}
	if deleted {
		snapshot.DeletionTimestamp = new(metav1.NewTime(now))
	}
	return snapshot
}

// thawedComplete is a content's whose guest goes on since all volumes are snapshotted.
var thawedComplete = recorded(FreezeRecord{Thawed: true, Complete: true})

func TestNext(t *testing.T) {
	begun, retained := inPhase(v1beta1.InProgress, time.Minute, false), inPhase(v1beta1.Succeeded, time.Hour, true)
	retained.Spec.DeletionPolicy = new(v1beta1.VirtualMachineSnapshotContentRetain)
	fresh := snapshotAged(0)
	fresh.Finalizers = nil
	volumes := []snapshots.Volume{{Name: "data", Claim: "a", Class: "class"}}
	deleting := vmLockedBy("")
	deleting.DeletionTimestamp = new(metav1.NewTime(now))
	half := vmLockedBy("snap")
	half.Status.SnapshotInProgress = nil
	begunLock := vmLockedBy("snap")
	begunLock.Finalizers = nil
	restored := vmLockedBy("")
	restored.Status.RestoreInProgress = new("r")

	for name, test := range map[string]struct {
		view View
		// want are the verbs of the step.
		want, progressing string
		phase             v1beta1.VirtualMachineSnapshotPhase
	}{
		"new": {View{Snapshot: fresh, VM: vmLockedBy("")}, "finalizer", "", ""},
		"begins": {
			View{Snapshot: begun, VM: vmLockedBy(""), Served: true, Classed: true, Volumes: volumes},
			"lock create",
			"operation in progress", "InProgress",
		},
		"no claims": {View{Snapshot: begun, VM: vmLockedBy("")}, "lock create", "operation in progress", "InProgress"},
		"no source": {View{Snapshot: begun}, "", "Source does not exist", "InProgress"},
		"unbound": {
			View{
				Snapshot: begun, VM: vmLockedBy(""), Served: true, Classed: true, Volumes: volumes,
				Troubles: map[string]string{"a": "volume not bound"},
			},
			"", "source test/demo volume not bound: a", "InProgress",
		},
		"half locked": {
			View{Snapshot: begun, VM: begunLock, Served: true, Classed: true, Volumes: volumes},
			"lock create",
			"operation in progress", "InProgress",
		},
		"half locked, and cannot go on": {
			View{
				Snapshot: begun, VM: begunLock, Served: true, Classed: true, Volumes: volumes,
				Troubles: map[string]string{"a": "volume not bound"},
			},
			"unlock", "source test/demo volume not bound: a", "InProgress",
		},
		"no kind": {
			View{Snapshot: begun, VM: vmLockedBy(""), Volumes: volumes}, "", "has no VolumeSnapshots", "InProgress",
		},
		"no class": {
			View{Snapshot: begun, VM: vmLockedBy(""), Served: true, Volumes: volumes},
			"", "has no VolumeSnapshotClass",
			"InProgress",
		},
		"pods": {
			View{Snapshot: begun, VM: vmLockedBy(""), Pods: 2},
			"", "source is offline but 2 pods using PVCs",
			"InProgress",
		},
		"another snapshot": {
			View{Snapshot: begun, VM: vmLockedBy("other")}, "", `snapshot "other" in progress`, "InProgress",
		},
		"a holder that went": {
			View{Snapshot: begun, VM: vmLockedBy("other"), HolderGone: true},
			"lock create", "operation in progress",
			"InProgress",
		},
		"a restore":        {View{Snapshot: begun, VM: restored}, "", `restore "r" in progress`, "InProgress"},
		"VM being deleted": {View{Snapshot: begun, VM: deleting}, "", "being deleted", "InProgress"},
		"under way": {
			View{Snapshot: begun, VM: vmLockedBy("snap"), Content: withStatus(false, false)},
			"",
			"operation in progress", "InProgress",
		},
		"taken": {
			View{Snapshot: begun, VM: vmLockedBy("snap"), Content: withStatus(false, true)},
			"unlock",
			"Operation complete", "Succeeded",
		},
		"taken, the VM is free": {
			View{Snapshot: begun, VM: vmLockedBy(""), Content: withStatus(false, true)},
			"", "Operation complete",
			"Succeeded",
		},
		"taken, another has the VM": {
			View{Snapshot: begun, VM: vmLockedBy("other"), Content: withStatus(false, true)},
			"", "Operation complete",
			"Succeeded",
		},
		"thawed, taken a moment ago": {
			View{Snapshot: begun, VM: vmLockedBy("snap"), Content: content(thawedComplete)},
			"unlock", "operation in progress", "InProgress",
		},
		"thawed, unlocked": {
			View{Snapshot: begun, VM: vmLockedBy(""), Content: content(thawedComplete)},
			"", "operation in progress", "InProgress",
		},
		"thawed after an error": {
			View{Snapshot: begun, VM: vmLockedBy("snap"), Content: content(recorded(FreezeRecord{Thawed: true}))},
			"", "operation in progress", "InProgress",
		},
		"half unlocked": {
			View{Snapshot: inPhase(v1beta1.Succeeded, time.Hour, false), VM: half, Content: withStatus(true, true)},
			"unlock", "Operation complete", "Succeeded",
		},
		"half unlocked by another": {
			View{Snapshot: begun, VM: half, Served: true, Classed: true, Volumes: volumes},
			"lock create", "operation in progress",
			"InProgress",
		},
		"made": {
			View{
				Snapshot: inPhase(v1beta1.Succeeded, time.Hour, false), VM: vmLockedBy("snap"),
				Content: withStatus(true, true),
			},
			"unlock", "Operation complete", "Succeeded",
		},
		"deadline": {
			View{
				Snapshot: inPhase(v1beta1.InProgress, time.Hour, false), VM: vmLockedBy("snap"),
				Content: withStatus(false, false),
			},
			"delete", "Operation failed", "InProgress",
		},
		"deadline, content gone": {
			View{Snapshot: inPhase(v1beta1.InProgress, time.Hour, false), VM: vmLockedBy("snap")},
			"unlock", "Operation failed", "Failed",
		},
		"deadline before the lock": {
			View{Snapshot: inPhase(v1beta1.InProgress, time.Hour, false), VM: vmLockedBy("other")},
			"", "Operation failed", "Failed",
		},
		"failed, content gone": {
			View{Snapshot: inPhase(v1beta1.Failed, time.Hour, false), VM: vmLockedBy("snap")},
			"unlock",
			"Operation failed", "Failed",
		},
		"deleted amid": {
			View{
				Snapshot: inPhase(v1beta1.InProgress, time.Minute, true), VM: vmLockedBy("snap"),
				Content: withStatus(false, false),
			},
			"delete", "VM snapshot is deleting", "Deleting",
		},
		"deleted amid, content is gone": {
			View{Snapshot: inPhase(v1beta1.Deleting, time.Minute, true), VM: vmLockedBy("snap")},
			"unlock release",
			"VM snapshot is deleting", "Deleting",
		},
		"deleted, VM is gone": {
			View{Snapshot: inPhase(v1beta1.Deleting, time.Minute, true)},
			"release", "VM snapshot is deleting",
			"Deleting",
		},
		"deleted": {
			View{
				Snapshot: inPhase(v1beta1.Succeeded, time.Hour, true), VM: vmLockedBy(""),
				Content: withStatus(true, true),
			},
			"delete release", "Operation complete", "Succeeded",
		},
		"deleted, content is kept": {
			View{Snapshot: retained, VM: vmLockedBy("other"), Content: withStatus(true, true)},
			"release",
			"Operation complete", "Succeeded",
		},
	} {
		test.view.Now = now
		step := Next(test.view)
		held := test.view.VM != nil && test.view.VM.Status.SnapshotInProgress != nil &&
			*test.view.VM.Status.SnapshotInProgress == test.view.Snapshot.Name
		if held && !step.Unlock && step.Status != nil && step.Status.Phase != v1beta1.InProgress &&
			step.Status.Phase != v1beta1.Deleting {
			t.Errorf("%s: phase %s while the VM is locked", name, step.Status.Phase)
		}
		if locked := test.view.VM != nil && test.view.VM.Status.SnapshotInProgress != nil; step.Later &&
			(!step.Unlock || !locked || step.RemoveFinalizer || !snapshots.Progressing(test.view.Snapshot)) {
			t.Errorf("%s: no event of the VM brings the status that is left for later", name)
		}
		var did []string
		for _, verb := range []struct {
			name string
			does bool
		}{
			{"finalizer", step.AddFinalizer},
			{"lock", step.Lock},
			{"create", step.CreateContent},
			{"unlock", step.Unlock},
			{"delete", step.DeleteContent},
			{"release", step.RemoveFinalizer},
		} {
			if verb.does {
				did = append(did, verb.name)
			}
		}
		if got := strings.Join(did, " "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if step.Status == nil {
			continue
		}
		progressing := conditions.Find(step.Status.Conditions, v1beta1.ConditionProgressing)
		if step.Status.Phase != test.phase || !strings.Contains(progressing.Reason, test.progressing) {
			t.Errorf("%s: phase %s, %q", name, step.Status.Phase, progressing.Reason)
		}
		if open := step.Status.Phase == v1beta1.InProgress && !step.DeleteContent; open != (step.RequeueAfter > 0) {
			t.Errorf("%s: looked at again after %s", name, step.RequeueAfter)
		}
	}
}

// What the guest waits for is not kept waiting: nothing is said of a snapshot that is made within two seconds, and the
// VM's finalizer goes after the status.
func TestLater(t *testing.T) {
	young := inPhase("", time.Second, false)
	closed := content(thawedComplete)
	failed := inPhase(v1beta1.InProgress, time.Second, false)
	failed.Status.Error = newError(now, "full")
	free := vmLockedBy("snap")
	free.Status.SnapshotInProgress = nil
	for name, test := range map[string]struct {
		view           View
		later, release bool
	}{
		"young":        {View{Snapshot: young, VM: vmLockedBy("snap"), Content: content(nil)}, true, false},
		"young, error": {View{Snapshot: failed, VM: vmLockedBy("snap"), Content: content(nil)}, false, false},
		"deleted": {
			View{Snapshot: inPhase("", time.Second, true), VM: vmLockedBy("snap"), Content: content(nil)},
			false, false,
		},
		"two seconds old": {
			View{Snapshot: inPhase("", brief, false), VM: vmLockedBy("snap"), Content: content(nil)}, false, false,
		},
		"thawed, locked":         {View{Snapshot: young, VM: vmLockedBy("snap"), Content: closed}, true, false},
		"thawed, unlocked":       {View{Snapshot: young, VM: free, Content: closed}, true, false},
		"thawed, unlocked, said": {View{Snapshot: young, VM: free, Content: withStatus(true, true)}, false, true},
		"thawed, deleted": {
			View{Snapshot: inPhase("", time.Second, true), VM: free, Content: closed}, false, true,
		},
	} {
		test.view.Now = now
		step := Next(test.view)
		if step.Later != test.later || step.Release != test.release {
			t.Errorf("%s: later %t, release %t", name, step.Later, step.Release)
		}
		if step.Later && !step.Unlock && step.RequeueAfter != time.Second {
			t.Errorf("%s: looked at again after %s", name, step.RequeueAfter)
		}
	}
}

func TestStatus(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}
	c := content(recorded(FreezeRecord{Quiesced: snapshots.QuiescedPaused, Thawed: true}))
	c.Status = &v1beta1.VirtualMachineSnapshotContentStatus{
		CreationTime: new(metav1.NewTime(now)), ReadyToUse: new(true),
	}
	view := View{
		Snapshot: snapshotAged(time.Minute), VM: vmLockedBy("snap"), VMI: vmi, Content: c, Now: now, Served: true,
		Classed: true,
		Volumes: []snapshots.Volume{
			{Name: "a", Claim: "a"},
			{Name: "b", Claim: "b"},
			{Name: "seed", Reason: "not supported"},
			{Name: "slow", Claim: "s", Reason: "no class"},
		},
	}
	got := Next(view).Status
	indications := fmt.Sprint(got.Indications) //nolint:staticcheck // KubeVirt fills it in, too
	if indications != "[NoGuestAgent Online PartialSnapshot Paused]" || len(got.SourceIndications) != 4 ||
		!strings.Contains(got.SourceIndications[2].Message, "slow (no class)") ||
		strings.Contains(got.SourceIndications[2].Message, "seed") {
		t.Errorf("indications %s, %+v", indications, got.SourceIndications)
	}
	if fmt.Sprint(*got.SnapshotVolumes) != "{[a b] [seed slow]}" || !*got.ReadyToUse ||
		got.Phase != v1beta1.Succeeded ||
		*got.SourceUID != "v" || *got.VirtualMachineSnapshotContentName != "content" ||
		!conditions.True(got.Conditions, v1beta1.ConditionReady) {
		t.Errorf("status %+v", got)
	}
	if m := conditions.Find(got.Conditions,
		v1beta1.ConditionProgressing).Message; m != "left out: seed (not supported), slow (no class)" {
		t.Errorf("message %q", m)
	}

	// Nothing is said of the guest before it was quiesced.
	early := view
	early.Content = content(recorded(FreezeRecord{}))
	if before := Next(early).Status; len(before.SourceIndications) != 1 ||
		before.SourceIndications[0].Indication != snapshots.PartialSnapshot {
		t.Errorf("before the freeze: %+v", before.SourceIndications)
	}
	early.Content = withStatus(true, true)
	if bare := Next(early).Status; len(bare.SourceIndications) != 2 ||
		bare.SourceIndications[0].Indication != v1beta1.VMSnapshotOnlineSnapshotIndication {
		t.Errorf("without a freeze: %+v", bare.SourceIndications)
	}
	early.Content, early.VM = nil, vmLockedBy("other")
	if none := Next(early).Status; len(none.SourceIndications) != 0 {
		t.Errorf("before it is begun: %+v", none.SourceIndications)
	}

	// It stays so, whatever becomes of the VM.
	view.Snapshot.Status, view.VMI, view.Volumes, view.Now = got, nil, nil, now.Add(time.Hour)
	again := Next(view).Status
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(again)
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("then %s, was %s", b, a)
	}

	// Without its content it is of no use.
	view.Content = nil
	if lost := Next(view).Status; *lost.ReadyToUse || lost.Error == nil ||
		!strings.Contains(*lost.Error.Message, "is gone") {
		t.Errorf("without content %+v", lost)
	}
}

func TestTrouble(t *testing.T) {
	bound := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	filled := bound.DeepCopy()
	filled.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Controller: new(true)}}
	deleted := bound.DeepCopy()
	deleted.DeletionTimestamp = new(metav1.NewTime(now))
	for want, claim := range map[string]*corev1.PersistentVolumeClaim{
		"volume doesnt exist": nil, "volume not bound": {}, "": bound, "volume is being deleted": deleted,
		"volume not populated": filled,
	} {
		if got := Trouble(claim, nil); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSource(t *testing.T) {
	volume := func(name string, plugged bool) v1.Volume {
		source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: plugged}
		source.ClaimName = name
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}
	}
	vm := vmLockedBy("snap")
	vm.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "large"}
	vm.Status.InstancetypeRef = &v1.InstancetypeStatusRef{
		ControllerRevisionRef: &v1.ControllerRevisionRef{Name: "demo-large-1"},
	}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{
		Hostname: "new", Volumes: []v1.Volume{volume("root", false), volume("added", true)},
	}}
	vmi := &v1.VirtualMachineInstance{Spec: v1.VirtualMachineInstanceSpec{
		Volumes: []v1.Volume{volume("root", false), volume("added", true), volume("only-here", true)},
		Domain:  v1.DomainSpec{Devices: v1.Devices{Disks: []v1.Disk{{Name: "only-here", Serial: "7"}}}},
	}}
	started := &appsv1.ControllerRevision{Data: runtime.RawExtension{
		Raw: []byte(
			`{"spec":{"instancetype":{"name":"large","revisionName":"demo-large-1"},"template":{"spec":{"hostname":"old","domain":{"devices":{}}}}}}`),
	}}
	got, err := sourceOf(vm, vmi, started)
	if err != nil {
		t.Fatal(err)
	}
	spec := got.Spec.Template.Spec
	if spec.Hostname != "old" || len(spec.Volumes) != 3 || spec.Volumes[2].Name != "only-here" ||
		len(spec.Domain.Devices.Disks) != 1 ||
		got.ManagedFields != nil || got.Spec.Instancetype.RevisionName != "demo-large-1" {
		t.Errorf("of a guest that runs: %+v", got)
	}
	if got, err = sourceOf(vm, nil, nil); err != nil || got.Spec.Template.Spec.Hostname != "new" ||
		len(got.Spec.Template.Spec.Volumes) != 2 ||
		got.Spec.Instancetype.RevisionName != "demo-large-1" {
		t.Errorf("of a VM that is off: %+v, %v", got, err)
	}
	if vm.Spec.Instancetype.RevisionName != "" || len(vm.Spec.Template.Spec.Volumes) != 2 {
		t.Errorf("the VM is changed: %+v", vm.Spec)
	}

	snapshot := snapshotAged(0)
	snapshot.Spec.Source.Name = "demo"
	own := copyOf(&appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "demo-large-1"}, Data: started.Data},
		snapshot)
	if own.Name != "snap-large-1" || own.OwnerReferences[0].UID != "s" || own.Namespace != "test" ||
		string(own.Data.Raw) != string(started.Data.Raw) {
		t.Errorf("the snapshot's own revision %+v", own)
	}
}
