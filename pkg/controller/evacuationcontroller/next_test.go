package evacuationcontroller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// view is a VMI on node one that is to leave it, and nothing in the way.
func view(change ...func(*View)) View {
	instance := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "uid"}}
	instance.Status = v1.VirtualMachineInstanceStatus{
		Phase: v1.Running, NodeName: "one", EvacuationNodeName: "one",
		Conditions: []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
		},
	}
	v := View{
		VMI: instance, Strategy: v1.EvictionStrategyLiveMigrate, Pods: 1, Limits: Limits{Cluster: 5, PerNode: 2},
		Now: now,
	}
	for _, c := range change {
		c(&v)
	}
	return v
}

// past adds a migration of ours that ended some time ago.
func past(phase v1.VirtualMachineInstanceMigrationPhase, ago time.Duration) func(*View) {
	return func(v *View) {
		n := len(v.Counts.Own)
		v.Counts.Own = append(v.Counts.Own, &v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s%d", namePrefix, n), UID: types.UID(fmt.Sprint(n)),
				CreationTimestamp: metav1.NewTime(now.Add(-ago - time.Second)),
				Annotations:       map[string]string{v1.EvacuationMigrationAnnotation: "one"},
			},
			Status: v1.VirtualMachineInstanceMigrationStatus{
				Phase: phase, PhaseTransitionTimestamps: []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
					{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-ago))},
				},
			},
		})
	}
}

func elsewhere(v *View) {
	v.Counts.Own[len(v.Counts.Own)-1].Annotations[v1.EvacuationMigrationAnnotation] = "two"
}
func byHand(v *View) { v.Counts.Own[len(v.Counts.Own)-1].Name = "mine" }

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		view   View
		create bool
		again  time.Duration
		reason string
	}{
		"marked": {view: view(), create: true},
		"if possible": {
			view: view(func(v *View) { v.Strategy = v1.EvictionStrategyLiveMigrateIfPossible }), create: true,
		},
		"not marked": {view: view(func(v *View) { v.VMI.Status.EvacuationNodeName = "" })},
		"has left":   {view: view(func(v *View) { v.VMI.Status.NodeName = "two" })},
		"tainted": {
			view: view(func(v *View) { v.VMI.Status.EvacuationNodeName, v.Draining = "", true }), create: true,
		},
		"External":      {view: view(func(v *View) { v.Strategy = v1.EvictionStrategyExternal })},
		"None":          {view: view(func(v *View) { v.Strategy, v.Draining = v1.EvictionStrategyNone, true })},
		"cannot move":   {view: view(func(v *View) { v.VMI.Status.Conditions[0].Status = corev1.ConditionFalse })},
		"not running":   {view: view(func(v *View) { v.VMI.Status.Phase = v1.Scheduled })},
		"node lost":     {view: view(func(v *View) { v.VMI.Status.Phase = v1.Unknown })},
		"being deleted": {view: view(func(v *View) { v.VMI.DeletionTimestamp = &metav1.Time{} })},
		"is moving":     {view: view(past(v1.MigrationRunning, 0))},
		"is queued":     {view: view(past(v1.MigrationPending, 0))},
		"moved before":  {view: view(past(v1.MigrationSucceeded, time.Second)), create: true},
		"is tidied up":  {view: view(func(v *View) { v.Pods = 2 }), again: waitAgain},
		"cluster full":  {view: view(func(v *View) { v.Counts.Unfinished.Cluster = 5 }), again: waitAgain},
		"node full": {
			view:  view(func(v *View) { v.Counts.Unfinished = migrations.Number{Cluster: 2, Away: 2} }),
			again: waitAgain,
		},
		"failed": {
			view: view(past(v1.MigrationFailed, 5*time.Second)), again: 15 * time.Second, reason: ReasonBackoff,
		},
		"failed, waited": {view: view(past(v1.MigrationFailed, 20*time.Second)), create: true},
		"failed twice": {
			view:  view(past(v1.MigrationFailed, time.Minute), past(v1.MigrationFailed, 5*time.Second)),
			again: 35 * time.Second, reason: ReasonBackoff,
		},
		"failed often": {
			view: view(past(v1.MigrationFailed, 6*time.Hour), past(v1.MigrationFailed, 5*time.Hour),
				past(v1.MigrationFailed, 4*time.Hour),
				past(v1.MigrationFailed, 3*time.Hour), past(v1.MigrationFailed, 2*time.Hour),
				past(v1.MigrationFailed, time.Minute)),
			again: 4 * time.Minute, reason: ReasonBackoff,
		},
		"failed, then not": {
			view: view(past(v1.MigrationFailed, time.Minute), past(v1.MigrationSucceeded, 2*time.Second)), create: true,
		},
		"failed elsewhere": {view: view(past(v1.MigrationFailed, time.Second), elsewhere), create: true},
		"failed by hand":   {view: view(past(v1.MigrationFailed, time.Second), byHand), create: true},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(tc.view)
			if (step.Create != nil) != tc.create || step.RequeueAfter != tc.again {
				t.Errorf("create %v, again after %s", step.Create, step.RequeueAfter)
			}
			reason := ""
			if step.Event != nil {
				reason = step.Event.Reason
			}
			if reason != tc.reason {
				t.Errorf("event %+v", step.Event)
			}
			if step.Event != nil {
				tc.view.Reported = *step.Event
				if again := Next(tc.view); again.Event != nil || again.RequeueAfter != tc.again {
					t.Errorf("later: event %+v, again after %s", again.Event, again.RequeueAfter)
				}
			}
			if step.Forget == Wanted(tc.view.VMI, tc.view.Strategy, tc.view.Draining) {
				t.Errorf("forgets: %t", step.Forget)
			}
		})
	}
}

// The migration's name follows from what there was before it: one made twice is the same.
func TestMigration(t *testing.T) {
	first, again := Next(view()).Create, Next(view()).Create
	second := Next(view(past(v1.MigrationFailed, time.Hour))).Create
	if first.Name != again.Name || first.Name == second.Name || !strings.HasPrefix(first.Name, "kubevirt-evacuation-") {
		t.Errorf("names %s, %s, %s", first.Name, again.Name, second.Name)
	}
	if first.Spec.VMIName != "vm" || first.Namespace != "ns" ||
		first.Annotations[v1.EvacuationMigrationAnnotation] != "one" || first.OwnerReferences[0].UID != "uid" {
		t.Errorf("migration %+v", first)
	}
}

// onDisk has a disk that only its node has, and a VM.
func onDisk(v *View) {
	vmi := v.VMI
	vmi.Status.Conditions[0].Status = corev1.ConditionFalse
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: vmi.Name, UID: "vm"}}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "a")}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "a", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}}
}

// The migration brings the disks where the VM has opted in, and the guest cannot move without.
func TestMigrationWithDisks(t *testing.T) {
	optedIn := func(v *View) { v.VMI.Annotations = map[string]string{volumemigration.OptInAnnotation: "true"} }
	if m := Next(view(onDisk)).Create; m != nil {
		t.Errorf("of a guest that has not opted in: %+v", m)
	}
	if m := Next(view(onDisk, optedIn)).Create; m == nil || !volumemigration.WithDisks(m) {
		t.Errorf("of one that has: %+v", m)
	}
	if m := Next(view(optedIn)).Create; m == nil || volumemigration.WithDisks(m) {
		t.Errorf("of one that can move without: %+v", m)
	}
	copying := func(v *View) { v.VMI.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "b" }
	if m := Next(view(onDisk, optedIn, copying)).Create; m == nil || volumemigration.WithDisks(m) {
		t.Errorf("of one whose disk is being copied: %+v", m)
	}
}
