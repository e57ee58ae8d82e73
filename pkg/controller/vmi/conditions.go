package vmi

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Condition returns the VMI's condition of a type, or nil.
func Condition(status *v1.VirtualMachineInstanceStatus, conditionType v1.VirtualMachineInstanceConditionType) *v1.VirtualMachineInstanceCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == conditionType {
			return &status.Conditions[i]
		}
	}
	return nil
}

// setCondition writes a condition; it keeps the transition time while the condition's status stays,
// and everything while nothing changes.
func setCondition(status *v1.VirtualMachineInstanceStatus, condition v1.VirtualMachineInstanceCondition, now time.Time) {
	old := Condition(status, condition.Type)
	if old == nil {
		condition.LastTransitionTime = metav1.NewTime(now)
		status.Conditions = append(status.Conditions, condition)
		return
	}
	condition.LastProbeTime = old.LastProbeTime
	condition.LastTransitionTime = old.LastTransitionTime
	if old.Status != condition.Status {
		condition.LastTransitionTime = metav1.NewTime(now)
	}
	*old = condition
}

func removeCondition(status *v1.VirtualMachineInstanceStatus, conditionType v1.VirtualMachineInstanceConditionType) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
		return c.Type == conditionType
	})
}

// setPhase moves the VMI to a phase and notes when.
func setPhase(status *v1.VirtualMachineInstanceStatus, phase v1.VirtualMachineInstancePhase, at time.Time) {
	if status.Phase == phase {
		return
	}
	status.Phase = phase
	status.PhaseTransitionTimestamps = append(status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(at)})
}

// PhaseSince is when the VMI last entered a phase; zero when it never did.
func PhaseSince(status *v1.VirtualMachineInstanceStatus, phase v1.VirtualMachineInstancePhase) time.Time {
	for _, transition := range slices.Backward(status.PhaseTransitionTimestamps) {
		if transition.Phase == phase {
			return transition.PhaseTransitionTimestamp.Time
		}
	}
	return time.Time{}
}

// notReady is the Ready condition of a VMI whose guest does not run.
func notReady(reason, message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	}
}

// notSynchronized is the condition of a VMI that cannot get on.
func notSynchronized(reason, message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	}
}
