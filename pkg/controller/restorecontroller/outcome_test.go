package restorecontroller

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// A restore that fails says in its condition and in its event which VM is left; the reason is the cause alone, which
// KubeVirt's clients match.
func TestFailureSaysWhatIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*View)
		want   string
	}{
		"a VM that is there": {
			func(v *View) {
				v.VMI = &v1.VirtualMachineInstance{}
				v.Restore.Spec.TargetReadinessPolicy = new(v1beta1.VirtualMachineRestoreFailImmediate)
			},
			"VM vm is the old one, whole: nothing of it was replaced",
		},
		"a VM that was to be made": {
			func(v *View) {
				v.VM = nil
				v.Restore.Spec.Target.Name = "copy"
				v.Restore.Spec.Patches = []string{`{"op":"remove","path":"/metadata/labels/nothing"}`}
			},
			"VM copy was not made",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t)
			tc.change(v)
			step := Next(*v)
			failure := conditions.Find(step.Status.Conditions, v1beta1.ConditionFailure)
			if failure == nil || len(step.Events) != 1 {
				t.Fatalf("it does not fail: %+v", step)
			}
			if failure.Message != failure.Reason+"; "+tc.want || strings.Contains(failure.Reason, tc.want) ||
				step.Events[0].Message != "VirtualMachineRestore failed "+failure.Message {
				t.Errorf("reason %q, message %q, event %q, want %q", failure.Reason, failure.Message,
					step.Events[0].Message, tc.want)
			}
		})
	}
}

// begunView returns a restore in place that has deleted a claim of its target.
func begunView(t *testing.T) *View {
	t.Helper()
	v := viewOf(t)
	inPlace(&v.Restore.Spec)
	v.VM.Status.RestoreInProgress = &v.Restore.Name
	v.Restore.Status.Restores = []v1beta1.VolumeRestore{{VolumeName: "root", PersistentVolumeClaimName: "root"}}
	return v
}

func TestOutcome(t *testing.T) {
	committed := viewOf(t)
	metav1.SetMetaDataAnnotation(&committed.VM.ObjectMeta, LastAnnotation, mark(committed.Restore))
	for want, v := range map[string]*View{
		"VM vm is the old one, whole: nothing of it was replaced":                                 viewOf(t),
		"VM vm is the new one, whole":                                                             committed,
		"VM vm has its old spec, and claims of it are replaced already; restore snapshot s again": begunView(t),
	} {
		if got := v.outcome(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A restore that has replaced claims does not fail for a guest that is there all of a sudden: that would leave neither
// VM whole.
func TestBegunWaitsForAGuest(t *testing.T) {
	for _, policy := range []v1beta1.TargetReadinessPolicy{
		v1beta1.VirtualMachineRestoreFailImmediate, v1beta1.VirtualMachineRestoreWaitGracePeriodAndFail,
		v1beta1.VirtualMachineRestoreStopTarget,
	} {
		v := begunView(t)
		v.VMI, v.Restore.Spec.TargetReadinessPolicy = &v1.VirtualMachineInstance{}, &policy
		v.Now = now.Add(2 * v1beta1.DefaultGracePeriod)
		step := Next(*v)
		if conditions.Find(step.Status.Conditions, v1beta1.ConditionFailure) != nil || step.Release {
			t.Errorf("%s: %+v", policy, step)
		}
		if stops := policy == v1beta1.VirtualMachineRestoreStopTarget; step.Stop.None() == stops {
			t.Errorf("%s: it stops %+v", policy, step.Stop)
		}
	}
}
