package clonecontroller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/restorecontroller"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

func viewOf(phase clonev1beta1.VirtualMachineClonePhase) *View {
	c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}}
	c.Spec.Source = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: kindMachine, Name: "vm"}
	c.Status.Phase = phase
	return &View{Clone: c, Suffix: "abcde", Now: time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)}
}

func readySnapshot() *v1beta1.VirtualMachineSnapshot {
	return &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "tmp-snapshot-u"},
		Status:     &v1beta1.VirtualMachineSnapshotStatus{ReadyToUse: new(true)},
	}
}

func contentOf() *v1beta1.VirtualMachineSnapshotContent {
	vm := &v1beta1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
		Name: "vm", Labels: map[string]string{"app": "a", "team/x": "b"},
		Annotations: map[string]string{"virtkit.io/renamed-from": "old", "note": "n"},
	}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
	}
	vm.Spec.Template.Spec.Domain.Firmware = &v1.Firmware{UUID: "1", Serial: "s"}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []v1.Interface{
		{Name: "default"},
		{Name: "second", MacAddress: "02:00:00:00:00:01"},
	}
	content := &v1beta1.VirtualMachineSnapshotContent{}
	content.Spec.Source.VirtualMachine = vm
	return content
}

// A clone goes through its phases, and says so.
func TestNext(t *testing.T) {
	v := viewOf(clonev1beta1.PhaseUnset)
	want := func(phase clonev1beta1.VirtualMachineClonePhase) Step {
		t.Helper()
		step := Next(*v)
		if step.Status == nil || step.Status.Phase != phase {
			t.Fatalf("%+v", step)
		}
		v.Clone.Status = *step.Status
		return step
	}
	want(clonev1beta1.SnapshotInProgress)
	v.Source = &v1.VirtualMachine{}
	step := want(clonev1beta1.SnapshotInProgress)
	if s := step.CreateSnapshot; s == nil || s.Name != "tmp-snapshot-u" || s.Spec.Source.Name != "vm" ||
		!metav1.IsControlledBy(s, v.Clone) {
		t.Errorf("snapshot %+v", step.CreateSnapshot)
	}
	v.Snapshot = readySnapshot()
	v.Snapshot.Status.ReadyToUse = nil
	if step := Next(*v); step.Status != nil {
		t.Errorf("the snapshot is not ready: %+v", step)
	}
	v.Snapshot = readySnapshot()
	want(clonev1beta1.RestoreInProgress)
	if step := Next(*v); step.CreateRestore != nil || step.RequeueAfter == 0 {
		t.Errorf("without a content: %+v", step)
	}
	v.Content = contentOf()
	v.Clone.Spec.VolumeNamePolicy = new(clonev1beta1.VolumeNamePolicyPrefixTargetName)
	step = want(clonev1beta1.RestoreInProgress)
	if r := step.CreateRestore; r == nil || r.Name != "tmp-restore-u" || r.Spec.Target.Name != "vm-clone-abcde" ||
		r.Spec.VirtualMachineSnapshotName != "tmp-snapshot-u" ||
		*r.Spec.VolumeRestorePolicy != v1beta1.VolumeRestorePolicyPrefixTargetName ||
		!metav1.IsControlledBy(r, v.Clone) {
		t.Errorf("restore %+v", step.CreateRestore)
	}
	v.Restore = step.CreateRestore
	if step := Next(*v); step.Status != nil {
		t.Errorf("the restore is not complete: %+v", step)
	}
	v.Restore.Status = &v1beta1.VirtualMachineRestoreStatus{Complete: new(true)}
	want(clonev1beta1.CreatingTargetVM)
	if *v.Clone.Status.TargetName != "vm-clone-abcde" {
		t.Errorf("target %s", *v.Clone.Status.TargetName)
	}
	v.Target = &v1.VirtualMachine{}
	want(clonev1beta1.Succeeded)
	if !conditions.True(v.Clone.Status.Conditions, clonev1beta1.ConditionReady) ||
		conditions.True(v.Clone.Status.Conditions, clonev1beta1.ConditionProgressing) {
		t.Errorf("conditions %+v", v.Clone.Status.Conditions)
	}
	v.Unbound = []string{"a"}
	if step := Next(*v); step.DeleteRestore != nil || step.DeleteSnapshot != nil {
		t.Errorf("a claim is not bound: %+v", step)
	}
	v.Unbound = nil
	if step := Next(*v); step.DeleteRestore != v.Restore {
		t.Errorf("%+v", step)
	}
	v.Restore = nil
	if step := Next(*v); step.DeleteSnapshot != v.Snapshot {
		t.Errorf("%+v", step)
	}
	v.Snapshot = nil
	want(clonev1beta1.Succeeded)
	if v.Clone.Status.SnapshotName != nil || v.Clone.Status.RestoreName != nil {
		t.Errorf("status %+v", v.Clone.Status)
	}
	if step := Next(*v); step.Status != nil || step.DeleteClone {
		t.Errorf("%+v", step)
	}
	v.Target = nil
	if step := Next(*v); !step.DeleteClone {
		t.Errorf("the VM is gone: %+v", step)
	}
}

func TestFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		phase  clonev1beta1.VirtualMachineClonePhase
		change func(*View)
		reason string
	}{
		"no VM": {clonev1beta1.SnapshotInProgress, func(*View) {}, reasonNoSource},
		"no snapshot": {
			clonev1beta1.SnapshotInProgress, func(v *View) { v.Clone.Spec.Source.Kind = kindSnapshot }, reasonNoSource,
		},
		"the snapshot is gone": {clonev1beta1.SnapshotInProgress, func(v *View) {
			v.Clone.Status.SnapshotName = new("tmp-snapshot-u")
		}, reasonSnapshotDeleted},
		"the snapshot failed": {clonev1beta1.SnapshotInProgress, func(v *View) {
			v.Clone.Status.SnapshotName = new("tmp-snapshot-u")
			v.Snapshot = readySnapshot()
			v.Snapshot.Status.Phase = v1beta1.Failed
		}, reasonSnapshotDeleted},
		"the snapshot is gone later": {clonev1beta1.RestoreInProgress, func(*View) {}, reasonSnapshotDeleted},
		"the restore is gone": {clonev1beta1.RestoreInProgress, func(v *View) {
			v.Snapshot, v.Clone.Status.RestoreName = readySnapshot(), new("tmp-restore-u")
		}, reasonRestoreFailed},
		"the restore failed": {clonev1beta1.RestoreInProgress, func(v *View) {
			v.Snapshot, v.Clone.Status.RestoreName = readySnapshot(), new("tmp-restore-u")
			v.Restore = &v1beta1.VirtualMachineRestore{Status: &v1beta1.VirtualMachineRestoreStatus{
				Conditions: []v1beta1.Condition{{Type: v1beta1.ConditionFailure, Status: "True", Reason: "no"}},
			}}
		}, reasonRestoreFailed},
		"the name is taken": {clonev1beta1.SnapshotInProgress, func(v *View) {
			v.Source, v.Other = &v1.VirtualMachine{}, &v1.VirtualMachine{}
		}, reasonTaken},
		"the name is taken meanwhile": {clonev1beta1.RestoreInProgress, func(v *View) {
			v.Snapshot, v.Restore, v.Other = readySnapshot(), &v1beta1.VirtualMachineRestore{}, &v1.VirtualMachine{}
		}, reasonTaken},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(tc.phase)
			tc.change(v)
			step := Next(*v)
			if step.Status == nil || step.Status.Phase != clonev1beta1.Failed || len(step.Events) != 1 ||
				step.Events[0].Reason != tc.reason ||
				step.Status.Conditions[0].Reason != "Failed" || step.Status.Conditions[0].Message == "" {
				t.Errorf("%+v", step)
			}
		})
	}
}

// A clone says why its snapshot has failed, which it deletes.
func TestSnapshotFailedWhy(t *testing.T) {
	v := viewOf(clonev1beta1.SnapshotInProgress)
	v.Clone.Status.SnapshotName, v.Snapshot = new("tmp-snapshot-u"), readySnapshot()
	v.Snapshot.Status.Phase, v.Snapshot.Status.Error = v1beta1.Failed, &v1beta1.Error{Message: new("the pool is full")}
	if step := Next(*v); step.Status == nil ||
		!strings.HasSuffix(step.Status.Conditions[0].Message, "failed: the pool is full") {
		t.Errorf("%+v", step.Status)
	}
}

// A clone that failed takes away what it has made, the restore first, and nothing that it is made from.
func TestDiscard(t *testing.T) {
	v := viewOf(clonev1beta1.Failed)
	v.Snapshot, v.Restore = readySnapshot(), &v1beta1.VirtualMachineRestore{}
	if step := Next(*v); step.DeleteRestore != v.Restore || step.DeleteSnapshot != nil {
		t.Errorf("%+v", step)
	}
	v.Restore = nil
	if step := Next(*v); step.DeleteSnapshot != v.Snapshot {
		t.Errorf("%+v", step)
	}
	v.Clone.Spec.Source.Kind = kindSnapshot
	if step := Next(*v); step.DeleteSnapshot != nil {
		t.Errorf("the source: %+v", step)
	}
}

// A clone says what its restore waits for.
func TestWaiting(t *testing.T) {
	v := viewOf(clonev1beta1.RestoreInProgress)
	v.Snapshot, v.Restore = readySnapshot(), &v1beta1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	v.Clone.Status.RestoreName = new("r")
	say := func(status corev1.ConditionStatus) string {
		v.Restore.Status = &v1beta1.VirtualMachineRestoreStatus{
			Conditions: []v1beta1.Condition{{Type: v1beta1.ConditionProgressing, Status: status, Reason: "quota"}},
		}
		step := Next(*v)
		if step.Status == nil || step.Status.Phase != clonev1beta1.RestoreInProgress {
			t.Fatalf("%+v", step)
		}
		v.Clone.Status = *step.Status
		return step.Status.Conditions[0].Message
	}
	if said := say(corev1.ConditionFalse); said != "restore r: quota" {
		t.Errorf("says %q", said)
	}
	if said := say(corev1.ConditionTrue); said != "" {
		t.Errorf("says %q", said)
	}
}

// The clone of a VM has an identity of its own, and the labels that the filters let through.
func TestPatches(t *testing.T) {
	source := contentOf().Spec.Source.VirtualMachine
	patches, err := Patches(source, &clonev1beta1.VirtualMachineCloneSpec{
		LabelFilters: []string{"*", "!team/*"}, AnnotationFilters: []string{}, NewSMBiosSerial: new("new"),
		Template:        clonev1beta1.VirtualMachineCloneTemplateFilters{LabelFilters: []string{"other"}},
		NewMacAddresses: map[string]string{"default": "02:00:00:00:00:09"},
		Patches:         []string{`{"op":"add","path":"/metadata/labels/mine","value":"1"}`},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	vm := &v1.VirtualMachine{ObjectMeta: source.ObjectMeta, Spec: source.Spec}
	delete(vm.Annotations, "virtkit.io/renamed-from") // as a restore does
	got, err := restorecontroller.Patch(vm, patches)
	if err != nil {
		t.Fatalf("%v: %v", patches, err)
	}
	domain := got.Spec.Template.Spec.Domain
	if len(got.Labels) != 2 || got.Labels["app"] != "a" || got.Labels["mine"] != "1" || len(got.Annotations) != 0 ||
		len(got.Spec.Template.ObjectMeta.Labels) != 0 ||
		domain.Firmware.UUID != "" || domain.Firmware.Serial != "new" ||
		domain.Devices.Interfaces[0].MacAddress != "02:00:00:00:00:09" ||
		domain.Devices.Interfaces[1].MacAddress != "" {
		t.Errorf("labels %v, annotations %v, domain %+v", got.Labels, got.Annotations, domain)
	}
	for filters, want := range map[string]string{
		"":      "a,b/c",
		"*":     "",
		"a":     "b/c",
		"b/*":   "a",
		"*,!b*": "b/c",
		"!a":    "a,b/c",
	} {
		if left := leftOut(map[string]string{"a": "", "b/c": ""}, strings.Split(filters, ",")); filters != "" &&
			strings.Join(left, ",") != want {
			t.Errorf("%s leaves out %v, want %s", filters, left, want)
		}
	}
	if left := leftOut(map[string]string{"a": ""}, nil); !slices.Equal(left, nil) {
		t.Errorf("no filters leave out %v", left)
	}
	// The restore does not take these over.
	if left := leftOut(map[string]string{"a": "", reserved.DisksBrought: ""}, []string{"b"}); !slices.Equal(left,
		[]string{"a"}) {
		t.Errorf("of the components' annotations and another, %v are left out", left)
	}
}

// A VM that names no interface has one all the same, and one that is asked for and not there is an error.
func TestPatchesOfAPlainVM(t *testing.T) {
	source := contentOf().Spec.Source.VirtualMachine.DeepCopy()
	source.Spec.Template.Spec.Domain.Devices.Interfaces, source.Spec.Template.Spec.Networks = nil, nil
	source.Spec.Template.Spec.Domain.Firmware = nil
	const mac = "02:00:00:00:00:09"
	ask := func(wanted map[string]string) (*v1.VirtualMachine, error) {
		patches, err := Patches(source,
			&clonev1beta1.VirtualMachineCloneSpec{NewMacAddresses: wanted, NewSMBiosSerial: new("new")}, nil)
		if err != nil {
			return nil, err
		}
		return restorecontroller.Patch(&v1.VirtualMachine{ObjectMeta: source.ObjectMeta, Spec: source.Spec}, patches)
	}
	vm, err := ask(map[string]string{"default": mac})
	if err != nil {
		t.Fatal(err)
	}
	spec := vm.Spec.Template.Spec
	if nics := spec.Domain.Devices.Interfaces; len(nics) != 1 || nics[0].MacAddress != mac ||
		nics[0].Masquerade == nil || len(spec.Networks) != 1 || spec.Networks[0].Pod == nil {
		t.Errorf("interfaces %+v, networks %+v", nics, spec.Networks)
	}
	if spec.Domain.Firmware == nil || spec.Domain.Firmware.Serial != "new" {
		t.Errorf("firmware %+v", spec.Domain.Firmware)
	}
	if vm, err := ask(nil); err != nil || len(vm.Spec.Template.Spec.Domain.Devices.Interfaces) != 0 {
		t.Errorf("%v: without a wish it has %+v", err, vm.Spec.Template.Spec.Domain.Devices.Interfaces)
	}
	if _, err := ask(map[string]string{"nope": mac}); err == nil ||
		!strings.Contains(err.Error(), "has no interface nope") {
		t.Errorf("%v", err)
	}
}
