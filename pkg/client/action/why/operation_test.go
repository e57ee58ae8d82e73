package why

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

func TestExplainOperation(t *testing.T) {
	taking := snapshot.New("default", "demo", "snap", snapshot.Options{})
	taking.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{Phase: snapshotv1beta1.InProgress}
	ready := taking.DeepCopy()
	ready.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
		Phase: snapshotv1beta1.Succeeded, ReadyToUse: new(true),
	}
	failed := taking.DeepCopy()
	failed.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
		Phase: snapshotv1beta1.Failed, Error: &snapshotv1beta1.Error{Message: new("deadline")},
	}
	content := &snapshotv1beta1.VirtualMachineSnapshotContent{
		Status: &snapshotv1beta1.VirtualMachineSnapshotContentStatus{
			VolumeSnapshotStatus: []snapshotv1beta1.VolumeSnapshotStatus{
				{VolumeSnapshotName: "vs", Error: &snapshotv1beta1.Error{Message: new("pool full")}},
			},
		},
	}
	lost := "Source not locked: its memory cannot be in the snapshot: disk root is lost"
	never, late := taking.DeepCopy(), failed.DeepCopy()
	never.Status.Conditions = []snapshotv1beta1.Condition{
		{Type: snapshotv1beta1.ConditionProgressing, Status: "False", Reason: lost},
	}
	late.Status.Error = nil
	late.Status.Conditions = []snapshotv1beta1.Condition{
		{Type: snapshotv1beta1.ConditionFailure, Status: "True", Message: "snapshot deadline exceeded: " + lost},
	}
	paused := taking.DeepCopy()
	paused.Status.Conditions = []snapshotv1beta1.Condition{
		{
			Type: snapshotv1beta1.ConditionProgressing, Status: "False",
			Reason: "Source not locked: its memory cannot be in the snapshot yet: it is paused",
		},
	}
	restore := snapshot.NewRestore("default", "back", "snap", "demo", snapshot.RestoreOptions{})
	stuck := restore.DeepCopy()
	stuck.Status = &snapshotv1beta1.VirtualMachineRestoreStatus{Conditions: []snapshotv1beta1.Condition{
		{Type: snapshotv1beta1.ConditionProgressing, Status: "False", Reason: "no room"},
	}}
	cloning := clone.New("default", "copy", clone.Options{Source: "demo", Target: "other"})
	cloning.Status.Phase, cloning.Status.SnapshotName = clonev1beta1.SnapshotInProgress, new("tmp")
	ended := cloning.DeepCopy()
	ended.Status.Phase = clonev1beta1.Failed
	for name, tc := range map[string]struct {
		facts   OperationFacts
		state   State
		summary string
		fix     string
	}{
		"ready": {OperationFacts{Name: "snap", Snapshot: ready}, OK, "can be restored", ""},
		"taking": {
			OperationFacts{Name: "snap", Snapshot: taking},
			Waiting, "being taken",
			"virtctl snapshot show snap -n default",
		},
		"failed": {
			OperationFacts{Name: "snap", Snapshot: failed},
			Broken, "failed: deadline",
			"virtctl snapshot show snap -n default",
		},
		"no memory": {
			OperationFacts{Name: "snap", Snapshot: never},
			Broken, "goes no further: InProgress: " + lost,
			"virtctl snapshot create demo snap -n default",
		},
		"too late": {
			OperationFacts{Name: "snap", Snapshot: late},
			Broken, "deadline exceeded: " + lost,
			"virtctl snapshot create demo snap -n default",
		},
		"paused": {
			OperationFacts{Name: "snap", Snapshot: paused}, Waiting, "it is paused", "virtctl why demo -n default",
		},
		"storage": {
			OperationFacts{Name: "snap", Snapshot: taking, Content: content},
			Broken, "being taken",
			"kubectl describe volumesnapshot/vs -n default",
		},
		"target runs": {
			OperationFacts{Name: "back", Restore: restore, Running: true},
			Waiting, "VM demo runs",
			"virtctl stop demo -n default",
		},
		"stuck": {
			OperationFacts{Name: "back", Restore: stuck},
			Broken, "goes no further: no room",
			"kubectl delete vmrestore back -n default",
		},
		"no snapshot": {
			OperationFacts{Name: "back", Restore: stuck, NoSource: true, Running: true},
			Broken,
			"snapshot/snap, which it restores, does not exist", "kubectl delete vmrestore back -n default",
		},
		"waits": {
			OperationFacts{Name: "back", Restore: stuck, Running: true},
			Waiting, "VM demo runs",
			"virtctl stop demo -n default",
		},
		"makes it": {
			OperationFacts{Name: "back", Restore: restore, NoTarget: true},
			Waiting, "under way: Pending",
			"virtctl why snapshot/snap -n default",
		},
		"restoring": {
			OperationFacts{Name: "back", Restore: restore},
			Waiting, "under way: Pending",
			"virtctl why snapshot/snap -n default",
		},
		"cloning": {
			OperationFacts{Name: "copy", Clone: cloning},
			Waiting, "under way: SnapshotInProgress",
			"virtctl why snapshot/tmp -n default",
		},
		"clone failed": {
			OperationFacts{Name: "copy", Clone: ended},
			Broken, "clone default/copy failed",
			"kubectl delete vmclone copy -n default",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.Namespace = "default"
			r := ExplainOperation(tc.facts)
			fixes := ""
			for _, c := range r.Causes {
				fixes += strings.Join(c.Fixes, "\n") + "\n"
			}
			if tc.state == Broken && strings.Contains(fixes, "snapshot/tmp") {
				t.Errorf("a clone that failed has no snapshot any more: %s", fixes)
			}
			if strings.Contains(fixes, "virtctl logs") {
				t.Errorf("virtctl logs has no source of components: %s", fixes)
			}
			if r.Verdict != tc.state || !strings.Contains(r.Summary, tc.summary) || !strings.Contains(fixes, tc.fix) {
				t.Errorf("%s %q\n%s", r.Verdict, r.Summary, fixes)
			}
			if (r.Verdict == OK) != (len(r.Causes) == 0) || len(r.Chain) < 2 {
				t.Errorf("causes %v, chain %v", r.Causes, r.Chain)
			}
		})
	}
}

// The chain of an operation says what became of its source.
func TestOperationOfWhatIsGone(t *testing.T) {
	taken := snapshot.New("default", "demo", "snap", snapshot.Options{})
	waits := taken.DeepCopy()
	taken.Status = &snapshotv1beta1.VirtualMachineSnapshotStatus{
		Phase: snapshotv1beta1.Succeeded, ReadyToUse: new(true),
	}
	cloned := clone.New("default", "copy", clone.Options{Source: "demo", Target: "other"})
	cloned.Status.Phase = clonev1beta1.Succeeded
	begun := cloned.DeepCopy()
	begun.Status.Phase, begun.Status.SnapshotName = clonev1beta1.SnapshotInProgress, new("tmp")
	for name, tc := range map[string]struct {
		facts   OperationFacts
		state   State
		message string
	}{
		"a snapshot that is taken": {OperationFacts{Snapshot: taken}, OK, "it does not exist any more"},
		"a snapshot":               {OperationFacts{Snapshot: waits}, Broken, "it does not exist"},
		"a clone that is there":    {OperationFacts{Clone: cloned}, OK, "it does not exist any more"},
		"a clone":                  {OperationFacts{Clone: begun}, Broken, "it does not exist"},
	} {
		tc.facts.Namespace, tc.facts.Name, tc.facts.NoSource = "default", "it", true
		chain := ExplainOperation(tc.facts).Chain
		if link := chain[len(chain)-1]; link.Object != "vm/demo" || link.State != tc.state ||
			!strings.HasPrefix(link.Message, tc.message) {
			t.Errorf("%s: %+v", name, link)
		}
	}
}

func TestOperationUnderWay(t *testing.T) {
	vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted)}}
	vm.Status.RestoreInProgress, vm.Status.SnapshotInProgress = new("back"), new("snap")
	r := Explain(Facts{Namespace: "default", Name: "demo", VM: vm, Stack: healthy().Stack})
	if r.Verdict != Waiting || r.Causes[0].Reason != "RestoreInProgress" {
		t.Errorf("%s: %+v", r.Verdict, r.Causes)
	}
	vm.Status.RestoreInProgress = nil
	vmi := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}
	waits := Facts{Namespace: "default", Name: "demo", VM: vm, VMI: vmi, Stack: healthy().Stack}
	waits.Restores = append(waits.Restores,
		*snapshot.NewRestore("default", "back", "snap", "demo", snapshot.RestoreOptions{}))
	for _, c := range Explain(waits).Causes {
		if c.Reason == "RestoreWaits" && strings.Contains(c.Message, "restore back waits for it to be stopped") {
			waits.Restores = nil
		}
	}
	if waits.Restores != nil {
		t.Errorf("the restore is not told of: %+v", Explain(waits).Causes)
	}
	if last := r.Causes[len(r.Causes)-1]; last.Reason != "SnapshotInProgress" || last.State != OK {
		t.Errorf("%+v", last)
	}
}

// A restore of a VM that is off does not wait for it: it says itself why it does not go on.
func TestRestoreStuck(t *testing.T) {
	vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted)}}
	r := snapshot.NewRestore("default", "back", "snap", "demo", snapshot.RestoreOptions{})
	r.Status = &snapshotv1beta1.VirtualMachineRestoreStatus{Conditions: []snapshotv1beta1.Condition{
		{Type: snapshotv1beta1.ConditionProgressing, Status: corev1.ConditionFalse, Reason: "another VM is there"},
	}}
	f := Facts{Namespace: "default", Name: "demo", VM: vm, Stack: healthy().Stack}
	f.Restores = append(f.Restores, *r)
	causes := Explain(f).Causes
	at := slices.IndexFunc(causes, func(c Cause) bool { return c.Reason == "RestoreStuck" })
	if at < 0 ||
		!strings.Contains(causes[at].Message, "restore back of it does not go on: InProgress: another VM is there") {
		t.Errorf("%+v", causes)
	}
}

// A VM that goes on from its memory is told of, with the way to have it boot; when the memory is gone nothing else
// helps.
func TestSavedMemory(t *testing.T) {
	vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{
		RunStrategy: new(v1.RunStrategyHalted), Template: &v1.VirtualMachineInstanceTemplateSpec{},
	}}
	vm.Annotations = map[string]string{savedmemory.ResumeAnnotation: `{"claim":"m","restore":"1"}`}
	const boot = "kubectl annotate vm demo virtkit.io/resume-memory- -n default, and it boots from its disks"
	for reason, claims := range map[string]map[string]*corev1.PersistentVolumeClaim{
		"Resumes": {"m": {}}, "SavedMemoryGone": {"m": nil},
	} {
		causes := Explain(
			Facts{Namespace: "default", Name: "demo", VM: vm, Claims: claims, Stack: healthy().Stack},
		).Causes
		at := slices.IndexFunc(causes, func(c Cause) bool { return c.Reason == reason })
		if at < 0 || causes[at].Fixes[0] != boot || (causes[at].State == Broken) != (claims["m"] == nil) {
			t.Errorf("%s: %+v", reason, causes)
		}
	}
	vm.Status.Conditions = []v1.VirtualMachineCondition{{
		Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue, Reason: "MemoryDoesNotFit",
		Message: "other disks",
	}}
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	causes := Explain(Facts{Namespace: "default", Name: "demo", VM: vm, Stack: healthy().Stack}).Causes
	if causes[0].Reason != "MemoryDoesNotFit" || causes[0].Fixes[0] != boot {
		t.Errorf("%+v", causes)
	}
}

// A clone that has not begun says nothing of its source, which may not exist.
func TestSourceOfAClone(t *testing.T) {
	c := &clonev1beta1.VirtualMachineClone{Spec: clonev1beta1.VirtualMachineCloneSpec{
		Source: &corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "web"},
	}}
	named := func() bool {
		r := ExplainOperation(OperationFacts{Namespace: "default", Name: "copy", Clone: c})
		return slices.ContainsFunc(r.Chain, func(l Link) bool { return l.Object == "vm/web" })
	}
	if named() {
		t.Error("a source that nobody has seen is ok")
	}
	c.Status.SnapshotName = new("tmp")
	if !named() {
		t.Error("the source is not named")
	}
}
