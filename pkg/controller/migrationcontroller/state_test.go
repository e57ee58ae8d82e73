package migrationcontroller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/config"
)

const stateFrom = "persistent-state-for-vm-aaaaa"

// withState gives the guest a TPM whose state is on a claim.
func withState(access corev1.PersistentVolumeAccessMode) func(*View) {
	return func(view *View) {
		vmi := view.VMI
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
			&metav1.ObjectMeta{Name: vmi.Name, UID: "vm-uid"}, v1.VirtualMachineGroupVersionKind)}
		vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{
			{Name: stateFrom, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
				ClaimName: stateFrom, AccessModes: []corev1.PersistentVolumeAccessMode{access},
			}},
		}
	}
}

// ownState is the claim that the migration has made for it.
func ownState(view *View) {
	view.StateClaim = vmicontroller.MigrationStateClaim(view.Migration, view.VMI, config.Config{})
	if ms := view.VMI.Status.MigrationState; ms != nil {
		ms.SourcePersistentStatePVCName, ms.TargetPersistentStatePVCName = stateFrom, view.StateClaim.Name
	}
}

// A claim that two nodes can use stays the guest's; one of a single node is left for another one, which the VMI's
// status names from the beginning.
func TestStateClaims(t *testing.T) {
	for access, moves := range map[corev1.PersistentVolumeAccessMode]bool{
		corev1.ReadWriteMany: false, corev1.ReadWriteOnce: true, corev1.ReadWriteOncePod: true,
	} {
		view := situation(scheduling, withState(access))
		ms := Next(view).VMIStatus.MigrationState
		if ms.SourcePersistentStatePVCName != stateFrom || ms.TargetPersistentStatePVCName == "" ||
			(ms.TargetPersistentStatePVCName != stateFrom) != moves {
			t.Errorf("%s: from %s to %s", access, ms.SourcePersistentStatePVCName, ms.TargetPersistentStatePVCName)
		}
		pod := Pod(view.Migration, view.VMI, vmicontroller.Facts{StateClaim: ms.TargetPersistentStatePVCName})
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil &&
				v.PersistentVolumeClaim.ClaimName == ms.TargetPersistentStatePVCName
		}) {
			t.Errorf("%s: the pod does not mount %s", access, ms.TargetPersistentStatePVCName)
		}
	}
	if ms := Next(situation(scheduling)).VMIStatus.MigrationState; ms.TargetPersistentStatePVCName != "" {
		t.Errorf("a guest without state: %s", ms.TargetPersistentStatePVCName)
	}
}

// The claim goes once it is known that the state has not come to it, and stays as long as it may hold the only one that
// is current.
func TestDropState(t *testing.T) {
	rwo := withState(corev1.ReadWriteOnce)
	guestEnded := func(view *View) { view.VMI.Status.Phase = v1.Failed }
	settled := func(view *View) {
		info := &view.VMI.Status.VolumeStatus[0]
		info.Name, info.PersistentVolumeClaimInfo.ClaimName = view.StateClaim.Name, view.StateClaim.Name
	}
	over := final(v1.MigrationFailed)
	// another: the guest was ended while it moved, and its VM has started a new one, which knows nothing of that.
	another := func(view *View) {
		view.VMI.UID, view.VMI.Status.MigrationState = "another", nil
		view.Migration.Status.PhaseTransitionTimestamps = append(view.Migration.Status.PhaseTransitionTimestamps,
			v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
				Phase: v1.MigrationScheduled, PhaseTransitionTimestamp: metav1.NewTime(now),
			})
	}
	for name, test := range map[string]struct {
		view View
		want bool
	}{
		"failed, the guest runs where it was":      {situation(rwo, ownState, failed, over), true},
		"never scheduled":                          {situation(scheduling, rwo, ownState, over), true},
		"never scheduled, and the guest has ended": {situation(scheduling, rwo, ownState, guestEnded, over), true},
		"the target was not ready":                 {situation(preparing, rwo, ownState, failed, over), true},
		"its pod is gone":                          {situation(rwo, ownState, failed, podGone, over), true},
		"the guest ended on the way":               {situation(rwo, ownState, failed, guestEnded, over), false},
		"the guest is there all the same":          {situation(rwo, ownState, failed, succeeded, over), false},
		"and its pod is gone":                      {situation(rwo, ownState, failed, succeeded, podGone, over), false},
		"the status names it":                      {situation(rwo, ownState, failed, settled, over), false},
		"a new instance has no word of it":         {situation(rwo, ownState, another, podGone, over), false},
		"succeeded": {
			situation(rwo, ownState, succeeded, final(v1.MigrationSucceeded)), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if step := Next(test.view); (step.DeleteState != nil) != test.want {
				t.Errorf("deletes %v", step.DeleteState)
			} else if step.AddFinalizer || !step.RemoveFinalizer {
				t.Error("the migration is not let go in the same step")
			}
		})
	}
}

// A guest whose state is on its way to a claim does not move on before it is there.
func TestStateFirst(t *testing.T) {
	next := situation(fresh, withState(corev1.ReadWriteOnce))
	if step := Next(next); !step.CreatePod {
		t.Fatalf("%+v", step)
	}
	next.VMI.Status.NodeName = "node02"
	next.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: "before", SourceNode: "node01", TargetNode: "node02", Completed: true,
		SourcePersistentStatePVCName: stateFrom, TargetPersistentStatePVCName: "other",
	}
	if step := Next(next); step.CreatePod || step.RequeueAfter == 0 {
		t.Errorf("it moves on: %+v", step)
	}
}
