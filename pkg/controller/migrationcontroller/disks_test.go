package migrationcontroller

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// older: the claim was there before the migration.
func older(view *View) {
	view.Disks.Claims["a-m1"].CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
}

func onClaim(name, claim string) v1.Volume { return *volumemigration.OnClaim(name, claim) }

// withDisk makes it a migration that brings the disk of volume data, on claim a, which only one node can use.
func withDisk(view *View) {
	fresh(view)
	view.Migration.CreationTimestamp = metav1.NewTime(now)
	view.Migration.Annotations = map[string]string{volumemigration.WithDisksAnnotation: "true"}
	view.Migration.Finalizers = append(view.Migration.Finalizers, volumemigration.WithDisksFinalizer)
	vm := &v1.VirtualMachine{}
	vm.Namespace, vm.Name, vm.UID, vm.ResourceVersion = "ns", "vm", "vm", "1"
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Volumes = []v1.Volume{onClaim("data", "a")}
	vm.Spec.Template.Spec.Domain.Devices.Disks = []v1.Disk{{
		Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
	}}
	vmi := view.VMI
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	vmi.Spec = *vm.Spec.Template.Spec.DeepCopy()
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", Size: 1 << 20, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "a", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}}
	vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse,
		Reason: v1.VirtualMachineInstanceReasonDisksNotMigratable, Message: "a is on one node",
	})
	view.Disks = &Disks{
		VM: vm, Pods: map[string]string{},
		Claims: map[string]*corev1.PersistentVolumeClaim{"a": claimNamed("a", nil)},
	}
}

func claimNamed(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Labels: labels,
		CreationTimestamp: metav1.NewTime(now),
	}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	return claim
}

// announced: the migration says which claim it makes.
func announced(view *View) {
	set(view, volumemigration.Made{Volume: "data", Claim: "a-m1"})
}

func set(view *View, made ...volumemigration.Made) {
	if err := volumemigration.SetMade(&view.Migration.Status, made, now); err != nil {
		panic(err)
	}
}

// unrecorded: the new claim is there, and virt-controller was killed before it could write its UID.
func unrecorded(view *View) {
	announced(view)
	view.Disks.Claims["a-m1"] = copied("a-m1")
}

// copied returns a claim with the migration's labels.
func copied(name string) *corev1.PersistentVolumeClaim {
	return claimNamed(name, map[string]string{
		volumemigration.CopiedByLabel: "mig", volumemigration.CopiedVolumeLabel: "data",
	})
}

// made: the new claim is there, and the migration says its UID.
func made(view *View) {
	unrecorded(view)
	set(view, volumemigration.Made{Volume: "data", Claim: "a-m1", UID: "uid-of-a-m1"})
}

// recorded: the VM names the new claim.
func recorded(view *View) {
	made(view)
	record := volumemigration.Record{Migration: "mig", VMI: "vmi", At: metav1.NewTime(now)}
	record.Disks = []volumemigration.RecordedDisk{{Was: onClaim("data", "a"), To: "a-m1"}}
	text, err := json.Marshal(record)
	if err != nil {
		panic(err)
	}
	view.Disks.VM.Annotations = map[string]string{volumemigration.RecordAnnotation: string(text)}
	view.Disks.VM.Spec.Template.Spec.Volumes = []v1.Volume{onClaim("data", "a-m1")}
}

// taken: the VMI does, too.
func taken(view *View) {
	recorded(view)
	view.VMI.Spec.Volumes = []v1.Volume{onClaim("data", "a-m1")}
}

// described: virt-controller has said what is copied, and the node that the guest can move.
func described(view *View) {
	taken(view)
	view.VMI.Status.MigratedVolumes, _ = volumemigration.Describe(view.VMI, view.Disks.Claims)
	view.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
	}}
}

// does says what a step does about disks in a view.
func does(view View, step Step) string {
	var out []string
	if now := volumemigration.MadeBy(&step.Status); !slices.Equal(now, volumemigration.MadeBy(&view.Migration.Status)) {
		for _, m := range now {
			out = append(out, strings.TrimSpace("note "+m.Claim+" "+string(m.UID)))
		}
	}
	for _, claim := range step.MakeClaims {
		out = append(out, "make "+claim.Name)
	}
	for _, claim := range step.DropClaims {
		out = append(out, "drop "+claim.Name)
	}
	if len(step.PatchVM) > 0 {
		text, err := json.Marshal(step.PatchVM)
		if err != nil {
			return err.Error()
		}
		switch {
		case strings.Contains(string(text), `"a-m1"`):
			out = append(out, "exchange")
		case strings.Contains(string(text), `"claimName":"a"`):
			out = append(out, "undo")
		default:
			out = append(out, "settle")
		}
	}
	if step.CreatePod {
		out = append(out, "pod")
	}
	if step.Release {
		out = append(out, "release")
	}
	return strings.Join(out, " ")
}

func TestBring(t *testing.T) {
	const pending, failed, scheduling = v1.MigrationPending, v1.MigrationFailed, v1.MigrationScheduling
	for name, c := range map[string]struct {
		changes []func(*View)
		phase   v1.VirtualMachineInstanceMigrationPhase
		does    string
		reason  string
	}{
		"new": {nil, pending, "note a-m1", ""},
		"a name is taken": {
			[]func(*View){func(v *View) { v.Disks.Claims["a-m1"] = claimNamed("a-m1", nil) }},
			pending, "note a-m2", "",
		},
		"its claim is announced": {[]func(*View){announced}, pending, "make a-m1", ""},
		"another takes the name": {
			[]func(*View){announced, func(v *View) { v.Disks.Claims["a-m1"] = claimNamed("a-m1", nil) }},
			pending, "note a-m2", "",
		},
		"one that is older takes the labels": {
			[]func(*View){unrecorded, older},
			pending, "note a-m2", "",
		},
		"its claim is made, and not noted": {[]func(*View){unrecorded}, pending, "note a-m1 uid-of-a-m1", ""},
		"its claim is not seen yet": {
			[]func(*View){made, func(v *View) { delete(v.Disks.Claims, "a-m1") }}, pending, "make a-m1", "",
		},
		"its claim is exchanged": {
			[]func(*View){made, func(v *View) { v.Disks.Claims["a-m1"].UID = "other" }}, pending, "note a-m2", "",
		},
		"its claim is deleted": {
			[]func(*View){made, func(v *View) {
				v.Disks.Claims["a-m1"].DeletionTimestamp = &v.Disks.Claims["a"].CreationTimestamp
			}},
			pending, "note a-m2", "",
		},
		"others come first":    {[]func(*View){func(v *View) { v.Wait = "others" }}, pending, "", ""},
		"its claim is made":    {[]func(*View){made}, pending, "exchange", ""},
		"the VM names it":      {[]func(*View){recorded}, pending, "", ""},
		"and others are first": {[]func(*View){recorded, func(v *View) { v.Wait = "others" }}, pending, "", ""},
		"the VMI names it":     {[]func(*View){taken}, pending, "", ""},
		"all is ready":         {[]func(*View){described}, scheduling, "pod", ""},
		"its time is over": {
			[]func(*View){taken, later(6 * time.Minute)}, failed, "", "has not said what is copied",
		},
		"ready in the end": {[]func(*View){described, later(6 * time.Minute)}, scheduling, "pod", ""},
		"the VM was changed": {
			[]func(*View){taken, func(v *View) { v.Disks.VM.Spec.Template.Spec.Volumes[0] = onClaim("data", "mine") }},
			failed, "", "were changed meanwhile",
		},
		"cancelled": {[]func(*View){taken, deleted}, failed, "", "cancelled before it began"},
		"staged": {
			[]func(*View){func(v *View) { v.Disks.Staged = true }}, failed, "", "vmRolloutStrategy",
		},
		"another's end": {
			[]func(*View){recorded, func(v *View) { v.Migration.UID = "next" }}, pending, "", "",
		},
		"the VM names another for the next start": {
			[]func(*View){func(v *View) { v.Disks.VM.Spec.Template.Spec.Volumes[0] = onClaim("data", "next") }},
			failed, "", "the VM names next for its next start",
		},
		"the VM has not the volume": {
			[]func(*View){func(v *View) { v.Disks.VM.Spec.Template.Spec.Volumes = nil }},
			failed, "", "the instance's alone",
		},
		"its claim is gone": {
			[]func(*View){func(v *View) { delete(v.Disks.Claims, "a") }}, failed, "", "a does not exist",
		},
		"shareable": {
			[]func(*View){func(v *View) { v.VMI.Spec.Domain.Devices.Disks[0].Shareable = new(true) }},
			failed, "", "shareable",
		},
		"shared storage": {
			[]func(*View){func(v *View) {
				v.VMI.Status.VolumeStatus[0].PersistentVolumeClaimInfo.AccessModes[0] = corev1.ReadWriteMany
				v.VMI.Status.Conditions = nil
			}},
			scheduling, "pod", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := situation(append([]func(*View){withDisk}, c.changes...)...)
			step := Next(view)
			if step.Status.Phase != c.phase || does(view, step) != c.does {
				t.Errorf("phase %s, and it does %q", step.Status.Phase, does(view, step))
			}
			if c.phase == failed && !strings.Contains(step.Status.MigrationState.FailureReason, c.reason) {
				t.Errorf("failed: %s", step.Status.MigrationState.FailureReason)
			}
			if c.phase == pending && step.RequeueAfter == 0 {
				t.Error("nobody looks again")
			}
		})
	}
	if step := Next(situation(withDisk, recorded)); len(step.Copied) != 1 || step.Copied[0].To != "a-m1" {
		t.Errorf("it says that it copies %+v", step.Copied)
	}
}

// A claim that takes the place of a DataVolume of the VM's templates is the VM's, too.
func TestOwned(t *testing.T) {
	templated := func(v *View) {
		source := v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "a"}}
		v.Disks.VM.Spec.Template.Spec.Volumes[0].VolumeSource = source
		v.Disks.VM.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	}
	for name, c := range map[string]struct {
		change func(*View)
		owners int
	}{"a claim": {func(*View) {}, 0}, "a template": {templated, 1}} {
		step := Next(situation(withDisk, announced, c.change))
		if len(step.MakeClaims) != 1 || len(step.MakeClaims[0].OwnerReferences) != c.owners {
			t.Errorf("%s: %+v", name, step.MakeClaims)
		}
	}
}

// What the end of a migration leaves.
func TestSettleDisks(t *testing.T) {
	reverted := func(v *View) {
		v.Disks.VM.Annotations = nil
		v.Disks.VM.Spec.Template.Spec.Volumes = []v1.Volume{onClaim("data", "a")}
	}
	back := func(v *View) {
		reverted(v)
		v.VMI.Spec.Volumes = []v1.Volume{onClaim("data", "a")}
		v.VMI.Status.MigratedVolumes = nil
	}
	landed := func(v *View) { volumemigration.Land(&v.VMI.Status) }
	ended := func(v *View) { v.VMI.Status.Phase = v1.Failed }
	halved := func(v *View) {
		v.Disks.VM.Status.VolumeUpdateState = volumemigration.UpdateState(v.Disks.VM, v.VMI)
	}
	noVM := func(v *View) { v.Disks.VM = nil }
	noVMI := func(v *View) { v.VMI = nil }
	sent := func(v *View) {
		v.Migration.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
			{Phase: v1.MigrationTargetReady, PhaseTransitionTimestamp: metav1.NewTime(now)},
		}
	}
	for name, c := range map[string]struct {
		phase   v1.VirtualMachineInstanceMigrationPhase
		changes []func(*View)
		does    string
		waits   bool
	}{
		"succeeded":                        {v1.MigrationSucceeded, []func(*View){described, landed}, "settle", true},
		"succeeded, and the VM is deleted": {v1.MigrationSucceeded, []func(*View){described, noVM}, "release", false},
		"failed":                           {v1.MigrationFailed, []func(*View){described}, "undo", true},
		"failed before the VM was changed": {v1.MigrationFailed, []func(*View){made}, "drop a-m1 release", false},
		"failed before anything":           {v1.MigrationFailed, nil, "release", false},
		"failed before its claim was made": {v1.MigrationFailed, []func(*View){announced}, "release", false},
		"its claim was not noted": {
			v1.MigrationFailed,
			[]func(*View){unrecorded},
			"note a-m1 uid-of-a-m1", true,
		},
		"another's has its labels": {
			v1.MigrationFailed,
			[]func(*View){made, func(v *View) { v.Disks.Claims["mine"] = copied("mine") }},
			"drop a-m1 release", false,
		},
		"another's has its labels, and its name": {
			v1.MigrationFailed,
			[]func(*View){made, func(v *View) { v.Disks.Claims["a-m1"].UID = "another" }},
			"release", false,
		},
		"another's has its labels, and the name that it meant to take": {
			v1.MigrationFailed,
			[]func(*View){
				unrecorded, older,
			},
			"release", false,
		},
		"it is deleted already": {
			v1.MigrationFailed,
			[]func(*View){made, func(v *View) {
				v.Disks.Claims["a-m1"].DeletionTimestamp = &v.Disks.Claims["a"].CreationTimestamp
			}},
			"release", false,
		},
		"the VMI is to follow": {v1.MigrationFailed, []func(*View){described, reverted}, "", true},
		"a pod has it": {
			v1.MigrationFailed,
			[]func(*View){described, back, func(v *View) { v.Disks.Pods["a-m1"] = "p" }},
			"", true,
		},
		"all is as it was": {
			v1.MigrationFailed,
			[]func(*View){described, back},
			"drop a-m1 release", false,
		},
		"the guest has ended": {v1.MigrationFailed, []func(*View){described, ended}, "undo", true},
		"it ended there": {
			v1.MigrationFailed,
			[]func(*View){described, landed, ended},
			"settle", true,
		},
		"the VMI is gone, not sent": {v1.MigrationFailed, []func(*View){described, noVMI}, "undo", true},
		"the VMI is gone, it was there": {
			v1.MigrationFailed,
			[]func(*View){described, sent, noVMI},
			"settle", true,
		},
		"the VMI is gone, it was not there": {
			v1.MigrationFailed,
			[]func(*View){described, sent, halved, noVMI},
			"undo", true,
		},
		"all are gone, not sent": {
			v1.MigrationFailed,
			[]func(*View){described, noVM, noVMI},
			"drop a-m1 release", false,
		},
		"all are gone": {
			v1.MigrationFailed,
			[]func(*View){described, sent, noVM, noVMI},
			"release", false,
		},
		"the VM is gone, its guest not": {v1.MigrationFailed, []func(*View){described, noVM}, "", true},
		"the VM is gone, it ended there": {
			v1.MigrationFailed,
			[]func(*View){described, noVM, landed, ended},
			"release", false,
		},
		"another has recorded": {
			v1.MigrationFailed, []func(*View){recorded, func(v *View) { v.Migration.UID = "before" }}, "release", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := situation(append(append([]func(*View){withDisk}, c.changes...), final(c.phase))...)
			step := Next(view)
			if got := does(view, step); got != c.does || c.waits != (step.RequeueAfter > 0) {
				t.Errorf("it does %q, and looks again in %s", got, step.RequeueAfter)
			}
		})
	}
	plain := situation(withDisk, described, final(v1.MigrationFailed))
	plain.Migration.Finalizers = slices.DeleteFunc(plain.Migration.Finalizers,
		func(f string) bool { return f == volumemigration.WithDisksFinalizer })
	if got := does(plain, Next(plain)); got != "" {
		t.Errorf("a migration that had not begun does %q", got)
	}
}
