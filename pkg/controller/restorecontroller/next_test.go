package restorecontroller

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// viewOf is the view of a restore that is prepared and has done nothing else.
func viewOf(t *testing.T) *View {
	t.Helper()
	vm, objects := source(false)
	w := newWorld(t, append(objects, vm, restoreOf("vm", nil))...)
	v := &View{
		Restore: restoreOf("vm", nil), VM: vm, Served: true, SourceExists: true, Now: now,
		Revisions: map[string]*appsv1.ControllerRevision{},
	}
	v.Restore.Status = v.initial()
	v.Restore.Finalizers = []string{Finalizer}
	v.Restore.OwnerReferences = append(v.Restore.OwnerReferences, ownerOf(vm))
	v.Snapshot, v.Content = &v1beta1.VirtualMachineSnapshot{}, &v1beta1.VirtualMachineSnapshotContent{}
	for name, into := range map[string]client.Object{"s": v.Snapshot, "content": v.Content} {
		w.must(w.client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: name}, into))
	}
	for _, backup := range snapshots.Backups(v.Content) {
		snapshot, err := csi{w}.Get(t.Context(), "ns", *backup.VolumeSnapshotName)
		w.must(err)
		v.Volumes = append(v.Volumes, Volume{Backup: backup, Snapshot: snapshot})
	}
	return v
}

// What stands in a restore's way is said, and changes nothing.
func TestTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*View)
		want   string
	}{
		"no snapshot": {func(v *View) { v.Snapshot = nil }, "VMSnapshot ns/s does not exist"},
		"failed snapshot": {
			func(v *View) { v.Snapshot.Status.Phase = v1beta1.Failed }, "VMSnapshot ns/s failed and is invalid to use",
		},
		"snapshot not ready": {func(v *View) { v.Snapshot.Status.ReadyToUse = nil }, "VMSnapshot ns/s not ready"},
		"no content name": {
			func(v *View) { v.Snapshot.Status.VirtualMachineSnapshotContentName = nil },
			"no snapshot content name in ns/s",
		},
		"no content":        {func(v *View) { v.Content = nil }, "VMSnapshotContent ns/content does not exist"},
		"content not ready": {func(v *View) { v.Content.Status = nil }, "VMSnapshotContent ns/content not ready"},
		"no VM in it": {
			func(v *View) { v.Content.Spec.Source.VirtualMachine = nil }, "unexpected snapshot source",
		},
		"no CSI":            {func(v *View) { v.Served = false }, "the cluster has no VolumeSnapshots"},
		"no VolumeSnapshot": {func(v *View) { v.Volumes[0].Snapshot = nil }, "missing volumeSnapshot"},
		"VolumeSnapshot not ready": {
			func(v *View) { v.Volumes[2].Snapshot.Status.ReadyToUse = new(false) },
			"volumeSnapshot vmsnapshot-1-volume-",
		},
		"another target": {
			func(v *View) { v.VM.UID = "another" },
			"restore source and restore target are different but restore target already exists",
		},
		"another restore": {
			func(v *View) { v.VM.Status.RestoreInProgress = new("other") }, "vm restore other in progress",
		},
		"a snapshot": {func(v *View) { v.VM.Status.SnapshotInProgress = new("s2") }, "vm snapshot s2 in progress"},
		"in place of another": {
			func(v *View) { inPlace(&v.Restore.Spec); v.VM = nil },
			"volumeRestorePolicy InPlace would replace the disks of VM vm",
		},
		"a claim of others": {func(v *View) {
			v.VM.Status.RestoreInProgress = new("r")
			v.Restore.Status.Restores = v.restores()
			v.Volumes[0].Claim = &corev1.PersistentVolumeClaim{}
			v.Volumes[0].Claim.Name = "mine"
		}, "PVC /mine exists, and this restore did not make it"},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t)
			tc.change(v)
			step := Next(*v)
			if !step.Stuck || step.RequeueAfter == 0 || len(step.Events) != 1 || step.Hold || step.VM != nil ||
				len(step.CreateClaims)+len(step.DeleteClaims) > 0 {
				t.Fatalf("%+v", step)
			}
			for _, c := range step.Status.Conditions {
				if c.Status != corev1.ConditionFalse || !strings.HasPrefix(c.Reason, tc.want) {
					t.Errorf("%s %s: %s", c.Type, c.Status, c.Reason)
				}
			}
			v.Restore.Status = step.Status
			if again := Next(*v); len(again.Events) > 0 {
				t.Errorf("it says so again: %+v", again.Events)
			}
		})
	}
}

// A VM of another name does not get the claims that the snapshot leaves out: the other VM has them.
func TestLeftOut(t *testing.T) {
	leaveOut := func(v *View) {
		vm := &v.Content.Spec.Source.VirtualMachine.Spec
		vm.Instancetype, vm.Preference = nil, nil
		vm.Template.Spec.Domain.Devices.Disks = append(vm.Template.Spec.Domain.Devices.Disks, v1.Disk{Name: "left"},
			v1.Disk{Name: "leftdv"})
		vm.Template.Spec.Volumes = append(vm.Template.Spec.Volumes,
			v1.Volume{
				Name: "left",
				VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "theirs"},
				}},
			},
			v1.Volume{Name: "leftdv", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv"}}})
		vm.DataVolumeTemplates = append(vm.DataVolumeTemplates,
			v1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "dv"}})
	}
	for target, kept := range map[string]bool{"vm": true, "copy": false} {
		v := viewOf(t)
		leaveOut(v)
		if !kept {
			v.VM = nil
		}
		v.Restore.Spec.Target.Name = target
		v.Restore.Status.Restores = v.restores()
		vm, err := v.machine()
		if err != nil {
			t.Fatal(err)
		}
		has := func(name string) (all []bool) {
			for _, o := range vm.Spec.Template.Spec.Volumes {
				if o.Name == name {
					all = append(all, true)
				}
			}
			for _, o := range vm.Spec.Template.Spec.Domain.Devices.Disks {
				if o.Name == name {
					all = append(all, true)
				}
			}
			for _, o := range vm.Spec.DataVolumeTemplates {
				if name == "leftdv" && o.Name == "dv" {
					all = append(all, true)
				}
			}
			return all
		}
		want := map[string]int{"left": 0, "leftdv": 0}
		if kept {
			want = map[string]int{"left": 2, "leftdv": 3}
		}
		for name, n := range want {
			if got := has(name); len(got) != n {
				t.Errorf("%s: %s is %d times in %+v", target, name, len(got), vm.Spec)
			}
		}
		if n := len(vm.Spec.Template.Spec.Volumes); n < 2 {
			t.Errorf("%s: %d volumes are left", target, n)
		}
		// The new VM tells of them, too.
		step, events := v.commit(), record.NewFakeRecorder(10)
		w := newWorld(t)
		r := &Reconciler{Client: w.client, Live: w.client, Recorder: events, Now: func() time.Time { return now }}
		r.Frame()
		step.VM, step.CreateRevisions = nil, nil
		if err := r.commit(t.Context(), *v, &step); err != nil {
			t.Fatal(err)
		}
		close(events.Events)
		said := ""
		for event := range events.Events {
			said += event
		}
		if kept != (said == "") ||
			!kept && !strings.HasPrefix(said, "Warning VolumesLeftOut VM copy is without left, leftdv: ") ||
			len(step.Events) != len(step.MadeEvents) {
			t.Errorf("%s: %q, %+v", target, said, step.Events)
		}
	}
}

// A restore whose patches do not apply fails before anything is made.
func TestUnpatchable(t *testing.T) {
	v := viewOf(t)
	v.VM = nil
	v.Restore.Spec.Target.Name = "copy"
	v.Restore.Spec.Patches = []string{`{"op":"remove","path":"/metadata/labels/nothing"}`}
	step := Next(*v)
	if !conditions.True(step.Status.Conditions, v1beta1.ConditionFailure) || step.Status.Restores != nil ||
		len(step.CreateClaims) > 0 {
		t.Fatalf("%+v", step)
	}
	if reason := conditions.Find(step.Status.Conditions, v1beta1.ConditionFailure).Reason; !strings.HasPrefix(reason,
		"error patching VM copy: ") {
		t.Errorf("it says %q", reason)
	}
}

// A patch that names a field which a VM does not have is refused, and one that adds a field is not.
func TestPatch(t *testing.T) {
	vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}}}
	const devices = "/spec/template/spec/domain/devices"
	for patch, want := range map[string]string{
		`{"op":"replace","path":"/spec/runStrategy","value":"Halted"}`:                 "",
		`{"op":"add","path":"/metadata/labels","value":{"a":"b"}}`:                     "",
		`{"op":"add","path":"` + devices + `/disks","value":[{"name":"a","disk":{}}]}`: "",
		`{"op":"replace","path":"/spec/runStrategi","value":"Halted"}`: "a VM has no field " +
			"spec.runStrategi;",
		`{"op":"add","path":"` + devices + `/dsks","value":[]}`: "no field spec.template.spec.domain.devices.dsks;",
		`{"op":"add","path":"` + devices +
			`/disks","value":[{"nam":"a"}]}`: "no field spec.template.spec.domain.devices.disks[0].nam;",
		`{"op":"replace","path":"/spec/runStrategy","value":["Halted"]}`: "what the patches make is no VM: ",
	} {
		after, err := Patch(vm, []string{patch})
		if want == "" && (err != nil || after == nil) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

// Patches are applied with virt-controller's rights: none writes an annotation of the components, also not by a copy of
// what only the VM says. One that is there may stay.
func TestPatchOfReserved(t *testing.T) {
	const from = "/spec/template/spec/nodeSelector"
	for _, key := range reserved.Keys() {
		path := "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
		for name, patches := range map[string][]string{
			"added":           {`{"op":"add","path":"` + path + `","value":"{}"}`},
			"in the template": {`{"op":"add","path":"/spec/template` + path + `","value":"{}"}`},
			"copied":          {`{"op":"copy","from":"` + from + `/a","path":"` + path + `"}`},
			"all copied": {
				`{"op":"add","path":"` + from + `","value":{}}`,
				`{"op":"add","path":"` + from + "/" + strings.ReplaceAll(key, "/", "~1") + `","value":"{}"}`,
				`{"op":"copy","from":"` + from + `","path":"/spec/template/metadata/annotations"}`,
			},
		} {
			vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}}}
			vm.Annotations = map[string]string{"a": "b"}
			vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"a": "b"}
			vm.Spec.Template.Spec.NodeSelector = map[string]string{"a": "{}"}
			if _, err := Patch(vm, patches); err == nil || !strings.Contains(err.Error(), "the annotation "+key+",") {
				t.Errorf("%s, %s: %v", key, name, err)
			}
		}
		vm := &v1.VirtualMachine{Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}}}
		vm.Annotations = map[string]string{key: "{}"}
		if _, err := Patch(vm, []string{`{"op":"add","path":"/metadata/annotations/a","value":"b"}`}); err != nil {
			t.Errorf("%s stays: %v", key, err)
		}
	}
}

// What a content says of a VM its namespace's users may have written: the VM that is made of it has no annotation of
// the components.
func TestReservedOfContent(t *testing.T) {
	v := viewOf(t)
	source := v.Content.Spec.Source.VirtualMachine
	source.Annotations = map[string]string{"a": "b"}
	source.Spec.Template.ObjectMeta.Annotations = map[string]string{"c": "d"}
	for _, key := range reserved.Keys() {
		source.Annotations[key], source.Spec.Template.ObjectMeta.Annotations[key] = "{}", "{}"
	}
	v.VM = nil
	vm, err := v.machine()
	if err != nil {
		t.Fatal(err)
	}
	if len(vm.Annotations) != 2 || vm.Annotations["a"] != "b" || vm.Annotations[LastAnnotation] == "" ||
		len(vm.Spec.Template.ObjectMeta.Annotations) != 1 || vm.Spec.Template.ObjectMeta.Annotations["c"] != "d" {
		t.Errorf("annotations %v, of the template %v", vm.Annotations, vm.Spec.Template.ObjectMeta.Annotations)
	}
	if len(source.Annotations) != 1+len(reserved.Keys()) {
		t.Errorf("the content was changed: %v", source.Annotations)
	}
}

// A restore whose snapshot is deleted, or never comes, fails: it would hold its target, and other restores, for ever.
func TestSnapshotGone(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*View)
		fails  bool
	}{
		"not there yet":     {func(*View) {}, false},
		"not there in time": {func(v *View) { v.Now = now.Add(6 * time.Minute) }, true},
		"gone": {
			func(v *View) { v.Restore.Status.Restores = []v1beta1.VolumeRestore{{PersistentVolumeClaimName: "a"}} },
			true,
		},
		"gone, the target runs": {
			func(v *View) { v.VMI, v.Now = &v1.VirtualMachineInstance{}, now.Add(6*time.Minute) }, true,
		},
		"gone amid the replacement": {func(v *View) {
			inPlace(&v.Restore.Spec)
			v.VM.Status.RestoreInProgress = new("r")
			v.Restore.Status.Restores = []v1beta1.VolumeRestore{{PersistentVolumeClaimName: "a"}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t)
			v.Snapshot, v.Content, v.Volumes = nil, nil, nil
			v.Restore.CreationTimestamp = metav1.NewTime(now)
			tc.change(v)
			step := Next(*v)
			if failed := conditions.True(step.Status.Conditions, v1beta1.ConditionFailure); failed != tc.fails {
				t.Fatalf("failed %v: %+v", failed, step.Status)
			}
			if reason := conditions.Find(step.Status.Conditions,
				v1beta1.ConditionReady).Reason; reason != "VMSnapshot ns/s does not exist" {
				t.Errorf("it says %q", reason)
			}
		})
	}
}

// A target that runs is waited for, stopped, or the end of the restore.
func TestReadiness(t *testing.T) {
	for name, tc := range map[string]struct {
		policy     v1beta1.TargetReadinessPolicy
		after      time.Duration
		want       string
		stop, fail bool
	}{
		"default": {
			want: "Waiting for target VM to be powered off. Please stop the restore target to proceed with " +
				"restore, or the operation will fail after 5m0s",
		},
		"too late": {
			after: 6 * time.Minute, fail: true,
			want: "Restore target failed to be ready within 5m0s. Please power off the target VM " +
				"before attempting restore",
		},
		"WaitEventually": {
			policy: v1beta1.VirtualMachineRestoreWaitEventually, after: time.Hour,
			want: "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore",
		},
		"StopTarget": {
			policy: v1beta1.VirtualMachineRestoreStopTarget, stop: true,
			want: "Automatically stopping restore target for restore operation",
		},
		"FailImmediate": {
			policy: v1beta1.VirtualMachineRestoreFailImmediate, fail: true,
			want: "Restore target VMI must be powered off before restore operation",
		},
		"WaitGracePeriod": {
			policy: v1beta1.VirtualMachineRestoreWaitGracePeriodAndFail, after: 5 * time.Minute,
			want: "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore, or",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t)
			v.VMI, v.Now = &v1.VirtualMachineInstance{}, now.Add(tc.after)
			if tc.policy != "" {
				v.Restore.Spec.TargetReadinessPolicy = &tc.policy
			}
			step := Next(*v)
			ready := conditions.Find(step.Status.Conditions, v1beta1.ConditionReady)
			if step.Stop.None() == tc.stop || !strings.HasPrefix(ready.Reason, tc.want) || step.Hold ||
				conditions.True(step.Status.Conditions, v1beta1.ConditionFailure) != tc.fail {
				t.Errorf("%+v", step)
			}
			v.Restore.Status = step.Status
			v.VM.Status.RestoreInProgress = new("r")
			if next := Next(*v); tc.fail && !next.Release {
				t.Errorf("a restore that failed holds its target: %+v", next)
			}
		})
	}
}

// The target's guest is stopped as `virtctl stop` does, and once.
func TestStopTarget(t *testing.T) {
	for name, tc := range map[string]struct {
		strategy v1.VirtualMachineRunStrategy
		ending   bool
		want     string
	}{
		"starts again":            {strategy: v1.RunStrategyAlways, want: "Halted"},
		"started once":            {strategy: v1.RunStrategyOnce, want: "Halted"},
		"halted":                  {strategy: v1.RunStrategyHalted},
		"by hand":                 {strategy: v1.RunStrategyManual, want: "guest"},
		"starts after a failure":  {strategy: v1.RunStrategyRerunOnFailure, want: "guest"},
		"ending":                  {strategy: v1.RunStrategyManual, ending: true},
		"ending, would come back": {strategy: v1.RunStrategyAlways, ending: true},
	} {
		v := viewOf(t)
		v.Restore.Spec.TargetReadinessPolicy = new(v1beta1.VirtualMachineRestoreStopTarget)
		v.VM.Spec.Running, v.VM.Spec.RunStrategy = nil, &tc.strategy
		v.VMI = &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "guest"}}
		if tc.ending {
			v.VMI.DeletionTimestamp = new(metav1.NewTime(now))
		}
		stop := Next(*v).Stop
		got := string(stop.Strategy)
		for _, request := range stop.Requests {
			got += string(*request.UID)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A restore that is stuck says so until a try succeeds; what it has made is written before.
func TestStuckUntilATrySucceeds(t *testing.T) {
	v := &View{Restore: &v1beta1.VirtualMachineRestore{}, Now: time.Unix(1, 0)}
	v.Restore.Status = v.initial()
	goesOn := func() *Step {
		status := v.status(textUpdating, textAwaiting)
		status.DeletedDataVolumes = []string{"dv"}
		return &Step{Status: status}
	}
	if now, afterwards := v.untilDone(goesOn()); afterwards != nil || !isProgress(now, textUpdating) {
		t.Errorf("one that is not stuck: %+v, %+v", now, afterwards)
	}
	stuck := v.stuck("denied")
	v.Restore.Status = stuck.Status
	if now, afterwards := v.untilDone(&stuck); afterwards != nil || !isProgress(now, "denied") {
		t.Errorf("stuck again: %+v, %+v", now, afterwards)
	}
	now, afterwards := v.untilDone(goesOn())
	if !isProgress(now, "denied") || len(now.DeletedDataVolumes) != 1 || !isProgress(afterwards, textUpdating) {
		t.Errorf("a try: %+v, %+v", now, afterwards)
	}
	failed := v.giveUp("too late")
	if now, afterwards := v.untilDone(&failed); afterwards != nil || !isProgress(now, "too late") {
		t.Errorf("given up: %+v, %+v", now, afterwards)
	}
	v.Restore.Status = failed.Status
	if isStuck(v.Restore.Status) {
		t.Error("one that failed is at its end")
	}
}

func isProgress(status *v1beta1.VirtualMachineRestoreStatus, text string) bool {
	progress := conditions.Find(status.Conditions, v1beta1.ConditionProgressing)
	return progress != nil && progress.Reason == text
}
