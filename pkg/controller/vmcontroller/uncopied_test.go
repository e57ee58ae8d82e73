package vmcontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// observed is the view after the reconciler has seen it: with the VMI that the step writes, and the status.
func observed(t *testing.T, view View) (View, Step) {
	t.Helper()
	step := Next(view)
	if step.Invalid != nil || step.Create != nil {
		t.Fatalf("%v, it makes %+v", step.Invalid, step.Create)
	}
	after := view
	if step.VMI != nil {
		after.VMI = step.VMI.DeepCopy()
	}
	after.VM = view.VM.DeepCopy()
	after.VM.Status = Status(step.After, step.Decision)
	return after, step
}

// ended is a view whose guest has ended in a phase.
func ended(view View, phase v1.VirtualMachineInstancePhase) View {
	view.VMI = view.VMI.DeepCopy()
	view.VMI.Status.Phase = phase
	return view
}

// naming is a view whose VM names a claim, with what it has of status and strategy.
func naming(t *testing.T, view View, claim string) View {
	t.Helper()
	vm := edited(t, view.VM.Generation+1, onClaim(claim))
	vm.Status, vm.Spec.UpdateVolumesStrategy = view.VM.Status, view.VM.Spec.UpdateVolumesStrategy
	vm.Spec.RunStrategy = view.VM.Spec.RunStrategy
	view.VM = vm
	return view
}

// goes takes a view whose guest ends from one look of the reconciler to the next until the VMI is gone.
func goes(t *testing.T, view View) View {
	t.Helper()
	view, step := observed(t, view)
	if view.VMI.IsFinal() && !step.Delete && view.VMI.DeletionTimestamp == nil {
		t.Fatalf("the VMI that has ended stays: %+v", step.Decision)
	}
	view.VMI, view.Now = nil, now.Add(time.Hour) // after the pause of one that has failed
	return view
}

// TestUncopiedDoesNotStart is what becomes of a VM that names claim d, to which the disk on c is to be copied, or e, at
// each moment at which its guest may end. Whatever happened, it does not start with a claim that has no data: it says
// so, and starts with c once it names that again, or with d once it says that d is to be used as it is.
func TestUncopiedDoesNotStart(t *testing.T) {
	deleted := func(view View) View {
		view.VMI = view.VMI.DeepCopy()
		view.VMI.DeletionTimestamp = &metav1.Time{Time: now}
		return view
	}
	taken := func(t *testing.T, view View) View { // the VMI names d
		t.Helper()
		view, step := observed(t, view)
		if step.VMI == nil || claimIn(view.VMI) != "d" {
			t.Fatalf("the VMI has not taken the change over: %+v", step.VMI)
		}
		return view
	}
	copying := func(t *testing.T, view View) View { // the migration is made
		t.Helper()
		view = taken(t, view)
		view.VMI.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{
			VolumeName: "a", SourcePVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
			DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "d"},
		}}
		view.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			StartTimestamp: &metav1.Time{Time: now},
		}
		return view
	}
	for name, c := range map[string]struct {
		reach func(t *testing.T, view View) View
		// names is the claim that the VM names in the end, has that with its data.
		names, has string
	}{
		"the VM was changed, the guest has crashed": {func(_ *testing.T, view View) View {
			return ended(view, v1.Failed)
		}, "d", "c"},
		"the VM was changed, the guest has powered off": {func(_ *testing.T, view View) View {
			return ended(view, v1.Succeeded)
		}, "d", "c"},
		"the VM was changed while the guest is being ended": {func(_ *testing.T, view View) View {
			return deleted(view)
		}, "d", "c"},
		"the VM was changed, the guest has been ended": {func(_ *testing.T, view View) View {
			return deleted(ended(view, v1.Succeeded))
		}, "d", "c"},
		"the VM was changed before the guest runs": {func(_ *testing.T, view View) View {
			return ended(ended(view, v1.Scheduled), v1.Failed)
		}, "d", "c"},
		"the VM was changed before it is known which claim the guest has": {func(_ *testing.T, view View) View {
			view = deleted(ended(view, v1.Scheduling))
			view.VMI.Status.VolumeStatus = nil
			return view
		}, "d", "c"},
		"the change waits for another migration": {func(t *testing.T, view View) View {
			t.Helper()
			view.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
			view, step := observed(t, view)
			if step.VMI != nil {
				t.Fatalf("the VMI is written: %+v", step.VMI.Spec.Volumes)
			}
			return ended(view, v1.Failed)
		}, "d", "c"},
		"no guest that runs is changed": {func(t *testing.T, view View) View {
			t.Helper()
			view.Staged = true
			view, _ = observed(t, view)
			return ended(view, v1.Failed)
		}, "d", "c"},
		"the guest cannot migrate": {func(t *testing.T, view View) View {
			t.Helper()
			view.VMI.Status.Conditions = append(view.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
				Type: v1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionFalse, Message: "a GPU",
			})
			view, _ = observed(t, view)
			return ended(view, v1.Failed)
		}, "d", "c"},
		"the VMI was changed": {func(t *testing.T, view View) View {
			t.Helper()
			return ended(taken(t, view), v1.Failed)
		}, "d", "c"},
		"the disk is being copied": {func(t *testing.T, view View) View {
			t.Helper()
			return ended(copying(t, view), v1.Failed)
		}, "d", "c"},
		"the disk is being copied, and the guest is being ended": {func(t *testing.T, view View) View {
			t.Helper()
			return deleted(copying(t, view))
		}, "d", "c"},
		"the migration has failed": {func(t *testing.T, view View) View {
			t.Helper()
			view = copying(t, view)
			view.VMI.Status.MigrationState.Failed, view.VMI.Status.MigrationState.Completed = true, true
			view.VMI.Status.MigrationState.EndTimestamp = &metav1.Time{Time: now}
			view, _ = observed(t, view)
			return ended(view, v1.Succeeded)
		}, "d", "c"},
		"a third claim was named while the disk is copied": {func(t *testing.T, view View) View {
			t.Helper()
			view, _ = observed(t, naming(t, copying(t, view), "e"))
			return ended(view, v1.Failed)
		}, "e", "c"},
		"the old claim was named after the guest had left it": {func(t *testing.T, view View) View {
			t.Helper()
			view = copying(t, view)
			volumemigration.Land(&view.VMI.Status)
			return ended(naming(t, view, "c"), v1.Failed)
		}, "c", "d"},
	} {
		t.Run(name, func(t *testing.T) {
			view := goes(t, c.reach(t, exchanging(t, v1.UpdateVolumesStrategyMigration, "d")))
			for range 2 { // it stays so
				step := Next(view)
				if step.Create != nil {
					t.Fatalf("the VM starts with claim %s, which has no data", claimIn(step.Create))
				}
				view.VM.Status = status(t, step.After)
				m := conditions.With(view.VM.Status.Conditions, v1.VirtualMachineManualRecoveryRequired,
					corev1.ConditionTrue)
				if m == nil || !strings.Contains(m.Message, "("+c.names+")") ||
					!strings.HasSuffix(m.Message, "had: a to "+c.has) {
					t.Fatalf("it says %+v", m)
				}
				if !volumemigration.Unfinished(view.VM, nil) {
					t.Error("a start that is asked for is not refused")
				}
				if is := view.VM.Status.PrintableStatus; is != v1.VirtualMachineStatusStopped {
					t.Errorf("it is %s", is)
				}
			}
			for claim, starts := range map[string]View{c.has: naming(t, view, c.has), c.names: accepting(view)} {
				step := Next(starts)
				if step.Create == nil || claimIn(step.Create) != claim {
					t.Fatalf("it does not start with %s: %+v", claim, step.Create)
				}
				if is := Status(step.After, step.Decision); is.VolumeUpdateState != nil ||
					conditions.Find(is.Conditions, v1.VirtualMachineManualRecoveryRequired) != nil {
					t.Errorf("with %s it says %+v", claim, is)
				}
			}
		})
	}
}

// accepting is a view whose VM is to start with what its claims have.
func accepting(view View) View {
	strategy := v1.UpdateVolumesStrategyReplacement
	view.VM = view.VM.DeepCopy()
	view.VM.Spec.UpdateVolumesStrategy = &strategy
	return view
}

// TestOthersStart is who starts with another claim all the same: nothing is missing there, or nobody said that disks
// are copied, or the claim was named when there was no guest.
func TestOthersStart(t *testing.T) {
	shared := func(view View) View {
		view.VMI.Spec.Domain.Devices.Disks[0].Shareable = new(true)
		return view
	}
	for name, reach := range map[string]func(t *testing.T) View{
		"its disk was copied": func(t *testing.T) View {
			t.Helper()
			view, _ := observed(t, exchanging(t, v1.UpdateVolumesStrategyMigration, "d"))
			view.VMI.Status.VolumeStatus[0].PersistentVolumeClaimInfo.ClaimName = "d"
			return goes(t, ended(view, v1.Failed))
		},
		"its disk is none that is copied": func(t *testing.T) View {
			t.Helper()
			return goes(t, ended(shared(exchanging(t, v1.UpdateVolumesStrategyMigration, "d")), v1.Failed))
		},
		"its claims are exchanged": func(t *testing.T) View {
			t.Helper()
			return goes(t, ended(exchanging(t, v1.UpdateVolumesStrategyReplacement, "d"), v1.Failed))
		},
		"it was changed after its VMI had gone": func(t *testing.T) View {
			t.Helper()
			return naming(t, goes(t, ended(exchanging(t, v1.UpdateVolumesStrategyMigration, "c"), v1.Failed)), "d")
		},
		"it was changed after its guest had ended": func(t *testing.T) View {
			t.Helper()
			view := exchanging(t, v1.UpdateVolumesStrategyMigration, "c")
			manual := v1.RunStrategyManual
			view.VM.Spec.RunStrategy = &manual
			view, step := observed(t, ended(view, v1.Succeeded))
			if step.Delete {
				t.Fatal("the VMI that has ended goes")
			}
			view, _ = observed(t, naming(t, view, "d"))
			view.VM.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StartRequest}}
			return goes(t, view)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if step := Next(reach(t)); step.Create == nil || claimIn(step.Create) != "d" {
				t.Errorf("it makes %+v, %+v", step.Create, step.Decision)
			}
		})
	}
}
