package snapshots

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

func TestClassesOf(t *testing.T) {
	classes := Classes{
		Provisioners: map[string]string{
			"one":     "a",
			"two":     "b",
			"none":    "c",
			"unclear": "d",
			"profile": "b",
			"gone":    "b",
		},
		Preferred: map[string]string{"profile": "b1", "gone": "b9"},
		Snapshots: []Class{
			{Name: "a1", Driver: "a"},
			{Name: "b1", Driver: "b"},
			{Name: "b2", Driver: "b", Default: true},
			{Name: "d1", Driver: "d"},
			{Name: "d2", Driver: "d"},
		},
	}
	for storage, want := range map[string]string{
		"one": "a1 ", "two": "b2 ", "none": " ", "unknown": " ", "": " ", "profile": "b1 ", "gone": " ",
		"unclear": " 2 matching VolumeSnapshotClasses for unclear; annotate one with " + DefaultClassAnnotation,
	} {
		name, trouble := classes.Of(storage)
		if got := name + " " + trouble; got != want {
			t.Errorf("%s: %q, want %q", storage, got, want)
		}
	}
}

func claimOf(class string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "of-" + class}}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

func onClaim(name, claim string, hotpluggable bool) v1.Volume {
	source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: hotpluggable}
	source.ClaimName = claim
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}
}

func TestVolumes(t *testing.T) {
	yes := true
	late := v1.DataVolumeTemplateSpec{
		Spec: cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{StorageClassName: new("csi")}},
	}
	late.Name = "late"
	ephemeral := &v1.EphemeralVolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"},
	}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "demo"}, Spec: v1.VirtualMachineSpec{
		DataVolumeTemplates: []v1.DataVolumeTemplateSpec{late},
		Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{
			Domain: v1.DomainSpec{Devices: v1.Devices{TPM: &v1.TPMDevice{Persistent: &yes}}},
			Volumes: []v1.Volume{
				{Name: "root", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}},
				onClaim("data", "a", false), onClaim("slow", "b", false), onClaim("lost", "c", false),
				{Name: "late", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "late"}}},
				{Name: "temporary", VolumeSource: v1.VolumeSource{Ephemeral: ephemeral}},
			},
		}},
	}}
	dump := v1.Volume{Name: "dump", VolumeSource: v1.VolumeSource{MemoryDump: &v1.MemoryDumpVolumeSource{}}}
	dump.MemoryDump.Hotpluggable = true
	vmi := &v1.VirtualMachineInstance{Spec: v1.VirtualMachineInstanceSpec{
		Volumes: []v1.Volume{onClaim("data", "a", false), onClaim("plugged", "d", true), dump},
	}}
	facts := Facts{
		Claims: map[string]*corev1.PersistentVolumeClaim{
			"a": claimOf("csi"),
			"b": claimOf("local"),
			"d": claimOf("csi"),
		},
		State:   claimOf("csi"),
		Classes: Classes{Provisioners: map[string]string{"csi": "x"}, Snapshots: []Class{{Name: "snap", Driver: "x"}}},
	}
	want := []Volume{
		{Name: "root", Reason: "Snapshot is not supported for this volumeSource type [root]"},
		{Name: "data", Claim: "a", StorageClass: "csi", Class: "snap"},
		{Name: "slow", Claim: "b", StorageClass: "local", Reason: "No VolumeSnapshotClass: Volume snapshots are not " +
			"configured for this StorageClass [local] [slow]"},
		{Name: "lost", Claim: "c", Reason: "PVC not found"},
		{Name: "late", Claim: "late", StorageClass: "csi", Class: "snap"},
		{Name: "temporary", Reason: "Snapshot is not supported for this volumeSource type [temporary]"},
		{Name: "plugged", Claim: "d", StorageClass: "csi", Class: "snap"},
		{Name: "persistent-state-for-demo", Claim: "of-csi", StorageClass: "csi", Class: "snap"},
	}
	got := Volumes(vm, vmi, facts)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if status := Statuses(got)[2]; status.Enabled || status.Reason != want[2].Reason || !Statuses(got)[1].Enabled {
		t.Errorf("statuses %+v", Statuses(got))
	}
	if stopped := Volumes(vm, nil, facts); len(stopped) != 7 {
		t.Errorf("of a stopped VM %+v", stopped)
	}
}

// A claim that is bound at the first start of its VM says so while the VM is off, and that is no volume that is left
// out: a snapshot waits for it.
func TestUnbound(t *testing.T) {
	classes := Classes{
		Provisioners: map[string]string{"late": "x", "now": "x", "plain": "y"},
		Late:         map[string]bool{"late": true, "plain": true},
		Snapshots:    []Class{{Name: "snap", Driver: "x"}},
	}
	const waits = "PVC c is bound when the VM is started for the first time"
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Volumes = []v1.Volume{onClaim("disk", "c", false)}
	for name, tc := range map[string]struct {
		class  string
		change func(*corev1.PersistentVolumeClaim)
		vmi    *v1.VirtualMachineInstance
		reason string
	}{
		"late":    {class: "late", reason: waits},
		"at once": {class: "now"},
		"bound": {class: "late", change: func(c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = corev1.ClaimBound
		}},
		"starting": {class: "late", vmi: &v1.VirtualMachineInstance{}},
		"filled now": {class: "late", change: func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{claims.BindAtOnce: ""}
		}},
		"no snapshots of it": {class: "plain", reason: "No VolumeSnapshotClass: Volume snapshots are not configured " +
			"for this StorageClass [plain] [disk]"},
	} {
		claim := claimOf(tc.class)
		claim.Status.Phase = corev1.ClaimPending
		if tc.change != nil {
			tc.change(claim)
		}
		facts := Facts{Claims: map[string]*corev1.PersistentVolumeClaim{"c": claim}, Classes: classes}
		vm.Status.VolumeSnapshotStatuses = Statuses(Volumes(vm, tc.vmi, facts))
		if got := vm.Status.VolumeSnapshotStatuses[0]; got.Reason != tc.reason || got.Enabled != (tc.reason == "") {
			t.Errorf("%s: %+v", name, got)
		}
		if left, unbound := LeftOut(vm), Unbound(vm); len(unbound) > 0 != (tc.reason == waits) ||
			len(left) > 0 != (tc.reason != waits && tc.reason != "") {
			t.Errorf("%s: left out %v, unbound %v", name, left, unbound)
		}
	}
}

func TestReady(t *testing.T) {
	yes, no := true, false
	for name, test := range map[string]struct {
		bare, deleted    bool
		ready            *bool
		want, restorable bool
	}{
		"new":              {bare: true},
		"nobody has said":  {},
		"not ready":        {ready: &no},
		"ready":            {ready: &yes, want: true, restorable: true},
		"ready, deleted":   {ready: &yes, deleted: true, want: true},
		"deleted, unready": {ready: &no, deleted: true},
	} {
		snapshot, content := &v1beta1.VirtualMachineSnapshot{}, &v1beta1.VirtualMachineSnapshotContent{}
		if test.deleted {
			snapshot.DeletionTimestamp, content.DeletionTimestamp = &metav1.Time{}, &metav1.Time{}
		}
		if !test.bare {
			snapshot.Status = &v1beta1.VirtualMachineSnapshotStatus{ReadyToUse: test.ready}
			content.Status = &v1beta1.VirtualMachineSnapshotContentStatus{ReadyToUse: test.ready}
		}
		if Ready(snapshot) != test.want || ContentReady(content) != test.want {
			t.Errorf("%s: Ready %t, ContentReady %t", name, Ready(snapshot), ContentReady(content))
		}
		if Restorable(snapshot) != test.restorable || ContentRestorable(content) != test.restorable {
			t.Errorf("%s: Restorable %t, ContentRestorable %t", name, Restorable(snapshot), ContentRestorable(content))
		}
	}
}

func TestDeadline(t *testing.T) {
	begun := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		deadline *metav1.Duration
		phase    v1beta1.VirtualMachineSnapshotPhase
		after    time.Duration
		want     bool
	}{
		"default, in time":  {nil, v1beta1.InProgress, 4 * time.Minute, false},
		"default, late":     {nil, v1beta1.InProgress, 6 * time.Minute, true},
		"none":              {&metav1.Duration{}, v1beta1.InProgress, 24 * time.Hour, false},
		"given":             {&metav1.Duration{Duration: time.Second}, "", 2 * time.Second, true},
		"succeeded, late":   {nil, v1beta1.Succeeded, time.Hour, false},
		"failed is failed":  {&metav1.Duration{}, v1beta1.Failed, 0, true},
		"deleting, in time": {nil, v1beta1.Deleting, time.Minute, false},
	} {
		snapshot := &v1beta1.VirtualMachineSnapshot{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(begun)},
			Spec:       v1beta1.VirtualMachineSnapshotSpec{FailureDeadline: test.deadline},
			Status:     &v1beta1.VirtualMachineSnapshotStatus{Phase: test.phase},
		}
		if got := Exceeded(snapshot, begun.Add(test.after)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestIndications(t *testing.T) {
	for quiesced, want := range map[Quiesced]string{
		"":              "[]",
		QuiescedAgent:   "[GuestAgent Online QuiesceTimeout]",
		QuiescedPaused:  "[NoGuestAgent Online Paused QuiesceTimeout]",
		QuiescedAlready: "[Online Paused QuiesceTimeout]",
		QuiescedNot:     "[NoGuestAgent Online QuiesceTimeout]",
	} {
		if got := fmt.Sprint(Indications(quiesced, true)); got != want {
			t.Errorf("%s: %s, want %s", quiesced, got, want)
		}
	}
	described := Describe([]v1beta1.Indication{v1beta1.VMSnapshotPausedIndication, PartialSnapshot},
		[]Volume{{Name: "data", Reason: "PVC not found"}})
	if described[0].Message == "" || described[1].Message != "Volumes with data were left out: data (PVC not found)." {
		t.Errorf("described %+v", described)
	}
}

// A snapshot has its VM's state, whatever asked for that; where the template asks, also without a backup of it.
func TestHasState(t *testing.T) {
	source := func(persistent bool) *v1beta1.VirtualMachine {
		template := &v1.VirtualMachineInstanceTemplateSpec{}
		template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: &persistent}
		return &v1beta1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Name: "vm"},
			Spec:       v1.VirtualMachineSpec{Template: template, Preference: &v1.PreferenceMatcher{Name: "any"}},
		}
	}
	for name, test := range map[string]struct {
		source  *v1beta1.VirtualMachine
		backups []string
		want    bool
	}{
		"no VM":                     {nil, []string{"persistent-state-for-vm"}, false},
		"disks only":                {source(false), []string{"root", "persistent-state-for-other"}, false},
		"of a preference":           {source(false), []string{"root", "persistent-state-for-vm"}, true},
		"of the template":           {source(true), []string{"persistent-state-for-vm"}, true},
		"of the template, not made": {source(true), nil, true},
	} {
		content := &v1beta1.VirtualMachineSnapshotContent{}
		content.Spec.Source.VirtualMachine = test.source
		for _, backup := range test.backups {
			content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, v1beta1.VolumeBackup{VolumeName: backup})
		}
		if got := HasState(content); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestClassesFor(t *testing.T) {
	classes := Classes{
		Provisioners: map[string]string{"one": "driver", "many": "other", "none": "third"},
		Snapshots: []Class{
			{Name: "s", Driver: "driver"}, {Name: "a", Driver: "other"}, {Name: "b", Driver: "other"},
		},
	}
	for storage, want := range map[string]struct{ name, reason string }{
		"one":  {"s", ""},
		"many": {"", "2 matching VolumeSnapshotClasses for many; annotate one with " + DefaultClassAnnotation},
		"none": {
			"", "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [none] [disk]",
		},
		"": {"", "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [] [disk]"},
	} {
		if name, reason := classes.For(storage, "disk"); name != want.name || reason != want.reason {
			t.Errorf("%q: %q, %q", storage, name, reason)
		}
	}
}
