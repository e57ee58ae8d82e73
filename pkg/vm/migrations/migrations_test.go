package migrations

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestUnderWay(t *testing.T) {
	type state = v1.VirtualMachineInstanceMigrationState
	now := &metav1.Time{}
	for name, c := range map[string]struct {
		state           *state
		underWay, begun bool
	}{
		"never migrated":    {nil, false, false},
		"told to the nodes": {&state{TargetPod: "b"}, true, false},
		"being sent":        {&state{TargetPod: "b", StartTimestamp: now}, true, true},
		"succeeded": {
			&state{StartTimestamp: now, EndTimestamp: now, Completed: true}, false, false,
		},
		"failed":                         {&state{StartTimestamp: now, EndTimestamp: now, Failed: true}, false, false},
		"cancelled before it began":      {&state{EndTimestamp: now, Failed: true}, false, false},
		"failed, the end is not noted":   {&state{StartTimestamp: now, Failed: true}, false, false},
		"arrived, the end is not noted":  {&state{StartTimestamp: now, Completed: true}, false, false},
		"ended, it is not noted how yet": {&state{StartTimestamp: now, EndTimestamp: now}, false, false},
	} {
		vmi := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{MigrationState: c.state}}
		if got := UnderWay(vmi); got != c.underWay {
			t.Errorf("%s: under way %t", name, got)
		}
		if got := Begun(vmi); got != c.begun {
			t.Errorf("%s: begun %t", name, got)
		}
	}
}

func TestMigratable(t *testing.T) {
	for status, c := range map[corev1.ConditionStatus]struct {
		migratable bool
		refusal    string
	}{
		"":                      {false, ""}, // its node has not said
		corev1.ConditionTrue:    {true, ""},
		corev1.ConditionUnknown: {false, ""},
		corev1.ConditionFalse:   {false, "Cannot migrate VMI, Reason: HostDevice, Message: it has a GPU"},
	} {
		vmi := &v1.VirtualMachineInstance{}
		if status != "" {
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
				Type: v1.VirtualMachineInstanceIsMigratable, Status: status,
				Reason: "HostDevice", Message: "it has a GPU",
			}}
		}
		if got, refusal := Migratable(vmi), Refusal(vmi); got != c.migratable || refusal != c.refusal {
			t.Errorf("%q: migratable %t, refused with %q", status, got, refusal)
		}
	}
}

func TestAtTarget(t *testing.T) {
	type state = v1.VirtualMachineInstanceMigrationState
	for name, c := range map[string]struct {
		state               *state
		succeeded, atTarget bool
	}{
		"never migrated":          {nil, false, false},
		"under way":               {&state{TargetNode: "b"}, false, false},
		"failed":                  {&state{TargetNode: "b", Completed: true, Failed: true}, false, false},
		"succeeded":               {&state{TargetNode: "b", Completed: true}, true, true},
		"the node is the old one": {&state{TargetNode: "c", Completed: true}, true, false},
	} {
		status := &v1.VirtualMachineInstanceStatus{NodeName: "b", MigrationState: c.state}
		if got := Succeeded(c.state); got != c.succeeded {
			t.Errorf("%s: succeeded %t", name, got)
		}
		if got := AtTarget(status); got != c.atTarget {
			t.Errorf("%s: at the target %t", name, got)
		}
	}
}

func TestFail(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	for name, cancelled := range map[string]bool{"failed": false, "cancelled": true} {
		state := &v1.VirtualMachineInstanceMigrationState{TargetNode: "b"}
		if Failed(nil) || Failed(state) {
			t.Errorf("%s: before it has", name)
		}
		Fail(state, "no network", cancelled, now)
		if !Failed(state) || !Over(state) || Succeeded(state) || state.FailureReason != "no network" ||
			!state.EndTimestamp.Time.Equal(now.Truncate(time.Second)) {
			t.Errorf("%s: %+v", name, state)
		}
		if got := state.AbortStatus == v1.MigrationAbortSucceeded; got != cancelled {
			t.Errorf("%s: the abort's status is %q", name, state.AbortStatus)
		}
	}
}

// A migration that is over is not "Aborting" any more, whether it has moved the guest or failed by itself.
func TestNotAborted(t *testing.T) {
	aborting := func() *v1.VirtualMachineInstanceMigrationState {
		return &v1.VirtualMachineInstanceMigrationState{
			AbortRequested: true, AbortStatus: v1.MigrationAbortInProgress,
		}
	}
	late, broken, cancelled := aborting(), aborting(), aborting()
	NotAborted(late)
	Fail(broken, "no network", false, time.Unix(1, 0))
	NotAborted(broken)
	Fail(cancelled, "cancelled", true, time.Unix(1, 0))
	never := &v1.VirtualMachineInstanceMigrationState{Completed: true}
	NotAborted(never)
	NotAborted(cancelled)
	for name, c := range map[string]struct {
		state *v1.VirtualMachineInstanceMigrationState
		want  v1.MigrationAbortStatus
	}{
		"moved all the same": {late, v1.MigrationAbortFailed},
		"failed by itself":   {broken, v1.MigrationAbortFailed},
		"cancelled":          {cancelled, v1.MigrationAbortSucceeded},
		"never asked to":     {never, ""},
	} {
		if c.state.AbortStatus != c.want || Aborting(c.state) {
			t.Errorf("%s: %q, not %q", name, c.state.AbortStatus, c.want)
		}
	}
}

func TestRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		status corev1.ConditionStatus
		want   string
	}{
		"nothing is said": {},
		"it can":          {status: corev1.ConditionTrue},
		"nobody knows":    {status: corev1.ConditionUnknown},
		"it cannot": {
			status: corev1.ConditionFalse, want: "Cannot migrate VMI, Reason: HostDevice, Message: it has one",
		},
	} {
		vmi := &v1.VirtualMachineInstance{}
		if c.status != "" {
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
				Type: v1.VirtualMachineInstanceIsMigratable, Status: c.status, Reason: "HostDevice",
				Message: "it has one",
			}}
		}
		if got := Refusal(vmi); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
