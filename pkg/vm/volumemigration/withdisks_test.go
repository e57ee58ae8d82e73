package volumemigration

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// ofAVM is running with a VM that has made it.
func ofAVM() *v1.VirtualMachineInstance {
	vmi := running()
	vmi.Name, vmi.UID = "vm", "vmi"
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "vm"}}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	return vmi
}

// A disk that cannot be copied is named once, as the spec has it, also where the guest's node names it among others.
func TestBringNamesDisksOnce(t *testing.T) {
	vmi := ofAVM()
	vmi.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{LUN: &v1.LunTarget{}}
	vmi.Spec.Volumes[2].HostDisk = &v1.HostDisk{Path: "/data/x.img"}
	stuck := Stuck(vmi)
	bridge := migrations.Obstacle{Kind: migrations.Interface, Object: "default", Text: "has the pod's own address"}
	gone := migrations.Obstacle{Kind: migrations.Claim, Object: "old", Text: "x cannot be used on two nodes at once"}
	said := slices.Concat([]migrations.Obstacle{bridge}, stuck, []migrations.Obstacle{gone})
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionFalse,
		Reason: v1.VirtualMachineInstanceReasonInterfaceNotMigratable, Message: migrations.EncodeObstacles(said),
	}}
	want := []Refused{
		{v1.VirtualMachineInstanceReasonDisksNotMigratable, migrations.EncodeObstacles(stuck)},
		{v1.VirtualMachineInstanceReasonInterfaceNotMigratable, bridge.String()},
	}
	if got := Bring(vmi).Refused; len(stuck) != 2 || !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBring(t *testing.T) {
	shared := func(vmi *v1.VirtualMachineInstance, i int) {
		claim := vmi.Status.VolumeStatus[i].PersistentVolumeClaimInfo
		claim.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	for name, c := range map[string]struct {
		change  func(*v1.VirtualMachineInstance)
		volumes []string
		refuses string // a part of the first reason
	}{
		"both": {func(*v1.VirtualMachineInstance) {}, []string{"one", "two"}, ""},
		"one is shared": {
			func(vmi *v1.VirtualMachineInstance) { shared(vmi, 0) }, []string{"two"}, "",
		},
		"both are shared, of no VM": {
			func(vmi *v1.VirtualMachineInstance) { shared(vmi, 0); shared(vmi, 1); vmi.OwnerReferences = nil }, nil, "",
		},
		"of no VM": {
			func(vmi *v1.VirtualMachineInstance) { vmi.OwnerReferences = nil },
			[]string{"one", "two"},
			"no VirtualMachine has made it",
		},
		"of a set": {
			func(vmi *v1.VirtualMachineInstance) { vmi.OwnerReferences[0].Kind = "VirtualMachineInstanceReplicaSet" },
			[]string{"one", "two"},
			"no VirtualMachine has made it",
		},
		"shareable": {
			func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.Disks[0].Shareable = new(true) },
			[]string{"two"},
			`volume "one": PersistentVolumeClaim a cannot be used on two nodes at once, and cannot be copied: its disk ` +
				`is shareable`,
		},
		"lun": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{LUN: &v1.LunTarget{}}
			},
			[]string{"two"},
			"it is a LUN",
		},
		"virtiofs": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Domain.Devices.Disks = vmi.Spec.Domain.Devices.Disks[1:]
				vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{
					{Name: "one", Virtiofs: &v1.FilesystemVirtiofs{}},
				}
			},
			[]string{"two"},
			"it is a file system (virtiofs)",
		},
		"plugged in": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes[0].PersistentVolumeClaim.Hotpluggable = true
				vmi.Annotations = map[string]string{hotplug.DeclaredAnnotation: "one"}
			},
			[]string{"two"},
			"it is not plugged in, or is just being unplugged",
		},
		"ephemeral": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes[0].VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"},
				}}
			},
			[]string{"two"},
			"it is not the guest's own",
		},
		"an image on the node": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes[2].HostDisk = &v1.HostDisk{Path: "/data/x.img"}
			},
			[]string{"one", "two"},
			"/data/x.img is this node's",
		},
		"an image on all nodes": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes[2].HostDisk = &v1.HostDisk{Path: "/data/x.img", Shared: new(true)}
			},
			[]string{"one", "two"},
			"",
		},
		"a GPU": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
					Type: v1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionFalse,
					Reason: "HostDeviceNotLiveMigratable", Message: "it has a GPU",
				}}
			},
			[]string{"one", "two"},
			"it has a GPU",
		},
		"one is copied as it is": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes = template(map[string]string{"one": "c"}).Volumes
			},
			[]string{"two"},
			"",
		},
		"which waits": {
			func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes = template(map[string]string{"one": "c"}).Volumes
				vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
					Type: Condition, Status: corev1.ConditionTrue, Reason: ReasonWaiting, Message: "c does not exist",
				}}
			},
			[]string{"two"},
			"c does not exist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := ofAVM()
			c.change(vmi)
			got := Bring(vmi)
			if !slices.Equal(got.Volumes, c.volumes) || !strings.Contains(got.Refusal(), c.refuses) ||
				(c.refuses == "") != (len(got.Refused) == 0) {
				t.Errorf("%+v", got)
			}
			if got.Helps() != (c.refuses == "" && len(c.volumes) > 0) {
				t.Errorf("helps: %t", got.Helps())
			}
			m := &v1.VirtualMachineInstanceMigration{}
			if RefusalOf(vmi, m) != Refusal(vmi) {
				t.Error("a migration without disks is another")
			}
			m.Annotations = map[string]string{WithDisksAnnotation: "true"}
			if RefusalOf(vmi, m) != got.Refusal() {
				t.Error("a migration with disks is not asked for its own reasons")
			}
			if Takes(vmi) {
				t.Error("it has not opted in")
			}
			vmi.Annotations = map[string]string{OptInAnnotation: "true"}
			if want := got.Helps() || Pending(vmi); Takes(vmi) != want {
				t.Errorf("it has opted in, and leaves: %t", !want)
			}
		})
	}
}

// The message of a claim that only one node can use says what helps, where it does: not when another disk is in the way
// of that.
func TestTiedSaysWhatHelps(t *testing.T) {
	for shared, helps := range map[bool]bool{false: true, true: false} {
		vmi := ofAVM()
		vmi.Spec.Domain.Devices.Disks[1].Shareable = new(shared)
		if Bring(vmi).Helps() != helps {
			t.Errorf("with a shared disk %t: a migration with disks helps %t", shared, !helps)
		}
		for i := range vmi.Spec.Volumes[:2] {
			o := Tied(vmi, &vmi.Spec.Volumes[i])
			if len(o) != 1 || strings.Contains(o[0].Text, "`virtctl migrate vm --with-disks`") != helps {
				t.Errorf("with a shared disk %t, volume %d: %+v", shared, i, o)
			}
		}
	}
}

// patched applies a patch to a VM as the API server does.
func patched(t *testing.T, vm *v1.VirtualMachine, ops []Operation) *v1.VirtualMachine {
	t.Helper()
	text, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(vm)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out := &v1.VirtualMachine{}
	if err := json.Unmarshal(after, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What is recorded with the exchange is undone, wherever the VM was changed meanwhile.
func TestRecord(t *testing.T) {
	replacement := v1.UpdateVolumesStrategyReplacement
	list := []Exchanged{{"one", "c"}, {"two", "d"}}
	for name, c := range map[string]struct {
		change func(*v1.VirtualMachine)
		// meanwhile changes the VM after the exchange, and keeps says which of its claims stay then.
		meanwhile func(*v1.VirtualMachine)
		keeps     string
	}{
		"claims":      {},
		"annotations": {change: func(vm *v1.VirtualMachine) { vm.Annotations = map[string]string{"a/b": "c"} }},
		"a strategy":  {change: func(vm *v1.VirtualMachine) { vm.Spec.UpdateVolumesStrategy = &replacement }},
		"it migrates": {change: func(vm *v1.VirtualMachine) { vm.Spec.UpdateVolumesStrategy = migration }},
		"DataVolumes": {change: func(vm *v1.VirtualMachine) {
			for i, name := range []string{"a", "b"} {
				vm.Spec.Template.Spec.Volumes[i].VolumeSource = v1.VolumeSource{
					DataVolume: &v1.DataVolumeSource{Name: name},
				}
				vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates,
					v1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		}},
		"one DataVolume of two": {change: func(vm *v1.VirtualMachine) {
			vm.Spec.Template.Spec.Volumes[0].VolumeSource = v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "a"}}
			for _, name := range []string{"x", "a"} {
				vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates,
					v1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		}},
		"somebody chose another": {
			meanwhile: func(vm *v1.VirtualMachine) {
				vm.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "mine"
			},
			keeps: "a mine",
		},
		"somebody removed one": {
			meanwhile: func(vm *v1.VirtualMachine) {
				vm.Spec.Template.Spec.Volumes = vm.Spec.Template.Spec.Volumes[:1]
			},
			keeps: "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", ResourceVersion: "1"}}
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *template(nil)}
			if c.change != nil {
				c.change(vm)
			}
			at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			ops, err := Recorded(vm, ofAVM(), "mig", list, at)
			if err != nil {
				t.Fatal(err)
			}
			after := patched(t, vm, ops)
			record := RecordOf(after)
			if record == nil || record.Migration != "mig" || record.VMI != "vmi" || !record.At.Equal(&at) ||
				!record.Named(after) || record.Named(vm) {
				t.Fatalf("%+v", record)
			}
			if want := []Copied{{"one", "a", "c"}, {"two", "b", "d"}}; !reflect.DeepEqual(record.Copied(), want) {
				t.Errorf("copied: %+v", record.Copied())
			}
			if got := claimsOf(after.Spec.Template.Spec.Volumes); got != "c d" ||
				*after.Spec.UpdateVolumesStrategy != v1.UpdateVolumesStrategyMigration {
				t.Errorf("it names %s", got)
			}
			for _, dv := range after.Spec.DataVolumeTemplates {
				if dv.Name == "a" || dv.Name == "b" {
					t.Errorf("a template of a DataVolume that no volume names: %s", dv.Name)
				}
			}
			if c.meanwhile != nil {
				c.meanwhile(after)
				back := patched(t, after, record.Undo(after))
				if got := claimsOf(back.Spec.Template.Spec.Volumes); got != c.keeps || RecordOf(back) != nil {
					t.Errorf("it names %s then", got)
				}
				return
			}
			settled := patched(t, after, record.Settle(after))
			if RecordOf(settled) != nil || claimsOf(settled.Spec.Template.Spec.Volumes) != "c d" {
				t.Errorf("settled: %+v", settled)
			}
			back := patched(t, after, record.Undo(after))
			slices.SortFunc(back.Spec.DataVolumeTemplates,
				func(a, b v1.DataVolumeTemplateSpec) int { return strings.Compare(b.Name, a.Name) })
			slices.SortFunc(vm.Spec.DataVolumeTemplates,
				func(a, b v1.DataVolumeTemplateSpec) int { return strings.Compare(b.Name, a.Name) })
			if len(back.Annotations) == 0 {
				back.Annotations = vm.Annotations
			}
			is, want := mustJSON(t, back), mustJSON(t, vm)
			if is != want {
				t.Errorf("undone it is\n%s\nand was\n%s", is, want)
			}
		})
	}
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Where the guest is decides whether the VM goes back.
func TestLanded(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", ResourceVersion: "1"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *template(nil)}
	ops, err := Recorded(vm, ofAVM(), "mig", []Exchanged{{"one", "c"}, {"two", "d"}}, metav1.Time{})
	if err != nil {
		t.Fatal(err)
	}
	vm = patched(t, vm, ops)
	record := RecordOf(vm)
	copying := ofAVM()
	copying.Spec.Volumes = template(both).Volumes
	if !record.UnderWay(copying) || record.UnderWay(ofAVM()) {
		t.Error("what is under way")
	}
	copying.Status.MigratedVolumes, _ = Describe(copying, map[string]*corev1.PersistentVolumeClaim{
		"c": found("c", "64Mi", corev1.PersistentVolumeBlock), "d": found("d", "64Mi", corev1.PersistentVolumeBlock),
	})
	there := copying.DeepCopy()
	Land(&there.Status)
	another := there.DeepCopy()
	another.UID = "another"
	half := vm.DeepCopy()
	half.Status.VolumeUpdateState = UpdateState(vm, copying)
	for name, c := range map[string]struct {
		vm           *v1.VirtualMachine
		vmi          *v1.VirtualMachineInstance
		begun, there bool
	}{
		"at the source":                     {half, copying, true, false},
		"not taken over":                    {vm, ofAVM(), false, false},
		"there":                             {vm, there, true, true},
		"gone before it was sent":           {vm, nil, false, false},
		"gone while it was copied":          {half, nil, true, false},
		"gone, and its VM has the data":     {vm, nil, true, true},
		"another, the copies are not whole": {half, another, true, false},
	} {
		if got := record.Landed(c.vm, c.vmi, c.begun); got != c.there {
			t.Errorf("%s: %t", name, got)
		}
	}
}
