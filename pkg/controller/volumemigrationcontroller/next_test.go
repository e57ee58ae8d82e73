package volumemigrationcontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func claim(name, size string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	return c
}

// copying is the view of a guest on claim a, whose spec names claim b. change may be nil.
func copying(change func(*View)) View {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "u"}}
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = "b"
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}}
	vmi.Status.Phase = v1.Running
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "root", Size: 64 << 20, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a"},
	}}
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
	}
	view := View{VMI: vmi, Settled: true, Now: now}
	view.Claims = map[string]*corev1.PersistentVolumeClaim{"b": claim("b", "64Mi")}
	if change != nil {
		change(&view)
	}
	return view
}

func described(view *View) {
	view.VMI.Status.MigratedVolumes, _ = volumemigration.Describe(view.VMI, view.Claims)
}

// filledBy has claim b filled by a DataVolume.
func filledBy(phase cdiv1.DataVolumePhase) func(*View) {
	return func(view *View) {
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
		dv.Status.Phase = phase
		view.DataVolumes = map[string]*cdiv1.DataVolume{"b": dv}
		view.Claims["b"].OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "b", Controller: new(true),
		}}
	}
}

// migration is one of the VMI's that was made here, or by somebody else.
func migration(
	name string, ours bool, phase v1.VirtualMachineInstanceMigrationPhase,
) *v1.VirtualMachineInstanceMigration {
	m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if ours {
		m.Labels = map[string]string{v1.VolumesUpdateMigration: "vm"}
		m.Annotations = map[string]string{v1.WorkloadUpdateMigrationAnnotation: ""}
	}
	m.Status.Phase = phase
	m.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
	m.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{FailureReason: "no room"}
	return m
}

func TestNext(t *testing.T) {
	reverted := func(view *View) {
		described(view)
		view.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "a"
	}
	has := func(list ...*v1.VirtualMachineInstanceMigration) func(*View) {
		return func(view *View) { view.Migrations = list }
	}
	with := func(changes ...func(*View)) func(*View) {
		return func(view *View) {
			for _, change := range changes {
				change(view)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*View)
		// described, migrates: what the status has then; reason and says are the condition's.
		described, migrates bool
		cancels             string
		reason, says        string
		again               bool
	}{
		"new": {nil, true, false, "", reasonCopying, "root from claim a to b", false},
		"the claim is not there": {
			func(view *View) { view.Claims = nil }, false, false, "", reasonWaiting, "b does not exist", true,
		},
		"too small": {
			func(view *View) { view.Claims["b"] = claim("b", "1Mi") }, false, false, "", reasonWaiting,
			"larger claim", true,
		},
		"another pod has it": {
			func(view *View) { view.Users = map[string]string{"b": "web"} }, false, false, "", reasonWaiting,
			"used by pod web", true,
		},
		"an image is being uploaded to it": {
			func(view *View) {
				view.Claims["b"].Annotations = map[string]string{
					uploads.AnnotationRequest: uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 1}),
				}
			}, false, false, "", reasonWaiting, `an image is being uploaded to PersistentVolumeClaim "b"`, true,
		},
		"a DataVolume that is being filled": {
			filledBy(cdiv1.ImportInProgress), false, false, "", reasonWaiting, `"b" is ImportInProgress`, true,
		},
		"a DataVolume that is not there": {func(view *View) {
			filledBy(cdiv1.Succeeded)(view)
			view.DataVolumes["b"] = nil
		}, false, false, "", reasonWaiting, "and is not there", true},
		"a DataVolume that waits for a pod": {
			filledBy(cdiv1.WaitForFirstConsumer), false, false, "", reasonWaiting, claims.BindAtOnce, true,
		},
		"a DataVolume that is filled for the guest's pod": {
			filledBy(cdiv1.PendingPopulation), true, false, "", reasonCopying, "root from claim a to b", false,
		},
		"a DataVolume that is filled": {
			filledBy(cdiv1.Succeeded), true, false, "", reasonCopying, "root from claim a to b", false,
		},
		"an upgrade": {func(view *View) { view.Settled = false }, false, false, "", reasonWaiting, "rolled out", true},
		"described":  {described, true, true, "", reasonCopying, "root from claim a to b", false},
		"its node does not let it go": {with(described, func(view *View) {
			view.VMI.Status.Conditions[0].Status = corev1.ConditionFalse
			view.VMI.Status.Conditions[0].Message = "a bridge"
		}), true, false, "", reasonWaiting, "a bridge", true},
		"its node has said nothing": {
			with(described, func(view *View) { view.VMI.Status.Conditions = nil }), true, false, "", reasonWaiting,
			"has not said", true,
		},
		"one is under way": {
			with(described, has(migration("m", true, v1.MigrationScheduling))), true, false, "", reasonCopying, "",
			false,
		},
		"the last failed": {
			with(described, has(migration("m", true, v1.MigrationFailed))), true, false, "", reasonWaiting,
			"failed: no room; the next", true,
		},
		"the nodes know of it": {with(described, func(view *View) {
			view.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
		}), true, false, "", "", "", false},
		"reverted": {
			reverted, false, false, "", v1.VirtualMachineInstanceReasonVolumesChangeCancellation, "again", false,
		},
		"reverted before it began": {
			with(has(migration("m", false, v1.MigrationPending)), func(view *View) {
				step := Next(copying(func(view *View) { view.Claims = nil }))
				view.VMI.Status = step.Status
				view.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "a"
			}), false, false, "", v1.VirtualMachineInstanceReasonVolumesChangeCancellation, "again", false,
		},
		"reverted amid it": {
			with(reverted, has(migration("m", true, v1.MigrationRunning))), true, false, "m", "", "", true,
		},
		"reverted, another's waits": {
			with(reverted, has(migration("m", false, v1.MigrationPending))), false, false, "",
			v1.VirtualMachineInstanceReasonVolumesChangeCancellation, "again", false,
		},
		"reverted, the end is near": {with(reverted, func(view *View) {
			view.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
		}), true, false, "", "", "", false},
		"ended": {
			with(described, func(view *View) { view.VMI.Status.Phase = v1.Failed }), true, false, "", "", "", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := copying(c.change)
			step := Next(view)
			if got := len(step.Status.MigratedVolumes) > 0; got != c.described || (step.Migrate != "") != c.migrates ||
				(step.RequeueAfter > 0) != c.again {
				t.Errorf("migratedVolumes %+v, migrates %q, again in %s", step.Status.MigratedVolumes, step.Migrate,
					step.RequeueAfter)
			}
			if got := len(step.Cancel) > 0; got != (c.cancels != "") || got && step.Cancel[0].Name != c.cancels {
				t.Errorf("cancels %v", step.Cancel)
			}
			found := conditions.Find(step.Status.Conditions, volumemigration.Condition)
			switch {
			case c.reason == "" && found != nil:
				t.Errorf("%+v", found)
			case c.reason != "" && (found == nil || found.Reason != c.reason ||
				!strings.Contains(found.Message, c.says)):
				t.Errorf("%+v, want %s: %s", found, c.reason, c.says)
			}
		})
	}
}

// A migration that failed is followed by another one, under another name, once the pause is over.
func TestNextMigration(t *testing.T) {
	first := Next(copying(described)).Migrate
	view := copying(func(view *View) {
		described(view)
		view.Migrations = []*v1.VirtualMachineInstanceMigration{migration(first, true, v1.MigrationFailed)}
	})
	view.Now = now.Add(time.Hour)
	if second := Next(view).Migrate; second == "" || second == first {
		t.Errorf("after %q comes %q", first, second)
	}
}

// No migration is made for disks that another brings, also when that has failed and the VM is to name the old claims.
func TestBroughtByAnother(t *testing.T) {
	m := migration("brings", false, v1.MigrationFailed)
	m.Finalizers = []string{volumemigration.WithDisksFinalizer}
	view := copying(described)
	if Next(view).Migrate == "" {
		t.Fatal("nobody brings it")
	}
	view.Migrations = []*v1.VirtualMachineInstanceMigration{m}
	if step := Next(view); step.Migrate != "" || step.RequeueAfter == 0 {
		t.Errorf("%+v", step)
	}
	m.Finalizers = nil
	if Next(view).Migrate == "" {
		t.Error("it is over")
	}
}
