package volumemigrationcontroller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// landed is the view of a guest that has left claim a for claim b, whose VM wants claims deleted that are left.
func landed(change func(*View)) View {
	view := copying(func(view *View) {
		left := claim("a", "64Mi")
		left.UID = "1"
		view.Sources = map[string]*corev1.PersistentVolumeClaim{"a": left}
	})
	step := Next(view)
	for _, claim := range step.Mark { // as apply does
		claim.Annotations = map[string]string{volumemigration.LeftAnnotation: string(view.VMI.UID)}
	}
	view.VMI.Status = step.Status
	volumemigration.Land(&view.VMI.Status)
	view.VM = &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "v"}}
	view.VM.Annotations = map[string]string{volumemigration.CopiedClaimsAnnotation: volumemigration.ClaimsDelete}
	view.VM.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	view.VM.Spec.Template.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("root", "b")}
	view.Left = map[types.UID]LeftClaim{"1": {Claim: view.Sources["a"]}}
	view.Seen = map[types.UID]Verdict{"1": {Since: now.Add(-again)}}
	if change != nil {
		change(&view)
	}
	return view
}

// filler is a DataVolume of an owner.
func filler(kind, name, uid string) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "dv", UID: "d"}}
	dv.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(uid)}}
	return dv
}

// TestClear: a claim that a guest has left is deleted only if somebody wants that and nothing speaks against it.
func TestClear(t *testing.T) {
	is := func(change func(*LeftClaim)) func(*View) {
		return func(view *View) {
			left := view.Left["1"]
			change(&left)
			view.Left["1"] = left
		}
	}
	for name, c := range map[string]struct {
		change func(*View)
		// deletes is the object's name, kept what the event says, and said that the status names the claim then.
		deletes, kept string
		said          bool
	}{
		"nobody else has it": {deletes: "a", said: true},
		"nobody wants it deleted": {change: func(view *View) {
			view.VM.Annotations = nil
		}},
		"its class wants it deleted": {change: func(view *View) {
			view.VM.Annotations = nil
			is(func(left *LeftClaim) {
				left.Class = &storagev1.StorageClass{}
				left.Class.Annotations = map[string]string{volumemigration.CopiedClaimsAnnotation: "Delete"}
			})(view)
		}, deletes: "a", said: true},
		"it is gone": {change: is(func(left *LeftClaim) { left.Claim = nil })},
		"it is going": {change: is(func(left *LeftClaim) {
			left.Claim.DeletionTimestamp = &metav1.Time{Time: now}
		})},
		"it is another":  {change: is(func(left *LeftClaim) { left.Claim.UID = "2" })},
		"the VM is gone": {change: func(view *View) { view.VM = nil }},
		"the guest came back to it": {change: func(view *View) {
			view.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "a"
			view.VMI.Status.VolumeStatus[0].PersistentVolumeClaimInfo.ClaimName = "a"
		}},
		"the VM names it": {change: func(view *View) {
			view.VM.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "a"
		}, kept: "the VirtualMachine names it"},
		"a template of the VM has its name": {change: func(view *View) {
			view.VM.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
		}, kept: "the VirtualMachine names it"},
		"the VM names a third": {change: func(view *View) {
			view.VM.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "c"
		}, kept: "the guest uses claim b, and the VirtualMachine names c"},
		"a migration may take it back": {change: func(view *View) {
			view.VM.Annotations[volumemigration.RecordAnnotation] = "{}"
		}, said: true},
		"another has it": {change: is(func(left *LeftClaim) { left.User = "it is db's" }), kept: "it is db's"},
		"a pod has it": {
			change: is(func(left *LeftClaim) { left.Pod = "web" }), said: true,
			kept: "pod web uses it; it is deleted once the pod has ended",
		},
		"a pod has it still": {change: func(view *View) {
			is(func(left *LeftClaim) { left.Pod = "web" })(view)
			view.Seen["1"] = Verdict{"web", now.Add(-time.Hour)}
		}, said: true},
		"a pod has had it": {change: func(view *View) {
			view.Seen["1"] = Verdict{"web", now.Add(-time.Hour)}
		}, said: true},
		"the guest's pod has it": {change: is(func(left *LeftClaim) {
			left.Pod, left.Ours = "virt-launcher", true
		}), said: true},
		"it is looked at for the first time": {change: func(view *View) { view.Seen = nil }, said: true},
		"it was looked at just now": {change: func(view *View) {
			view.Seen["1"] = Verdict{Since: now.Add(time.Millisecond - again)}
		}, said: true},
		"it does not say that it was left": {change: is(func(left *LeftClaim) {
			left.Claim.Annotations = nil
		}), kept: "its annotation virtkit.io/left-by does not say so"},
		"another's guest has left it": {change: is(func(left *LeftClaim) {
			left.Claim.Annotations[volumemigration.LeftAnnotation] = "another"
		}), kept: "its annotation virtkit.io/left-by does not say so"},
		"it is an image": {change: is(func(left *LeftClaim) {
			left.Claim.Labels = map[string]string{uploads.LabelImage: "debian"}
		}), kept: "it is an image, by its label image.virtkit.io/name"},
		"it belongs to another": {change: is(func(left *LeftClaim) {
			left.Claim.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "s"}}
		}), kept: "it belongs to StatefulSet db"},
		"it belongs to the VM": {change: is(func(left *LeftClaim) {
			left.Claim.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "vm", UID: "v"}}
		}), deletes: "a", said: true},
		"a DataVolume has it": {change: is(func(left *LeftClaim) {
			left.Claim.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "dv", UID: "d"}}
			left.DataVolume = filler("VirtualMachine", "vm", "v")
		}), deletes: "dv", said: true},
		"its DataVolume is gone": {change: is(func(left *LeftClaim) {
			left.Claim.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "dv", UID: "d"}}
		}), deletes: "a", said: true},
		"its DataVolume is another's": {change: is(func(left *LeftClaim) {
			left.Claim.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "dv", UID: "d"}}
			left.DataVolume = filler("DataImportCron", "x", "c")
		}), kept: "it belongs to DataImportCron x"},
		"it is being copied on": {change: func(view *View) {
			view.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "c"
		}, said: true},
		"it migrates on": {change: func(view *View) {
			view.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
		}, said: true},
		"the guest has ended": {change: func(view *View) { view.VMI.Status.Phase = v1.Succeeded }, said: true},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(landed(c.change))
			var deleted []string
			for _, object := range step.Delete {
				deleted = append(deleted, object.GetName())
			}
			if got := strings.Join(deleted, " "); got != c.deletes {
				t.Errorf("deletes %q, want %q", got, c.deletes)
			}
			said := volumemigration.LeftBy(&step.Status)
			want := volumemigration.Left{Volume: "root", Claim: "a", UID: "1"}
			if (len(said) > 0) != c.said || c.said && said[0] != want {
				t.Errorf("the status says %+v", said)
			}
			events := ""
			for _, e := range step.Events {
				events += e.message
			}
			if !strings.Contains(events, c.kept) || (events == "") != (c.kept == "") {
				t.Errorf("events %q, want %q", events, c.kept)
			}
		})
	}
}

// TestClearKilled: whoever comes after a kill at any write ends with the claim gone, and nothing said of it.
func TestClearKilled(t *testing.T) {
	view := landed(nil)
	server := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme, corev1.AddToScheme}, view.Sources["a"])
	for range 2 { // the first is killed after its deletion, and remembers nothing
		recorder := record.NewFakeRecorder(9)
		r := &Reconciler{Client: server, Recorder: recorder, writes: frame.NewWrites(server)}
		step := Next(view)
		if err := r.apply(t.Context(), view, &step); err != nil {
			t.Fatal(err)
		}
		if step.RequeueAfter == 0 || len(volumemigration.LeftBy(&step.Status)) != 1 {
			t.Fatalf("nobody comes back: %+v", step)
		}
	}
	if !slices.Contains(server.Writes, "delete PersistentVolumeClaim a") {
		t.Fatalf("writes %q", server.Writes)
	}
	view.Left = nil
	if step := Next(view); len(step.Delete) > 0 || len(volumemigration.LeftBy(&step.Status)) > 0 ||
		step.RequeueAfter != 0 {
		t.Errorf("the end is %+v", step)
	}
}

// A copy that begins says which claim is left before its migration is made.
func TestLeftIsSaidFirst(t *testing.T) {
	view := copying(func(view *View) {
		left := claim("a", "64Mi")
		left.UID = "1"
		view.Sources = map[string]*corev1.PersistentVolumeClaim{"a": left}
	})
	step := Next(view)
	if said := volumemigration.LeftBy(&step.Status); len(said) != 1 || said[0].UID != "1" || step.Migrate != "" ||
		len(step.Mark) != 1 || step.Mark[0].Name != "a" {
		t.Errorf("the status says %+v, claims %v, migration %q", said, step.Mark, step.Migrate)
	}
	view.VMI.Status, view.Now = step.Status, now.Add(time.Minute)
	if step := Next(view); step.Migrate == "" || len(volumemigration.LeftBy(&step.Status)) != 1 {
		t.Errorf("then %+v", step)
	}
}
