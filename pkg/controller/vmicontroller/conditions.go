package vmicontroller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// setPhase moves the VMI to a phase and notes when.
func setPhase(status *v1.VirtualMachineInstanceStatus, phase v1.VirtualMachineInstancePhase, at time.Time) {
	if status.Phase == phase {
		return
	}
	status.Phase = phase
	status.PhaseTransitionTimestamps = append(status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(at)})
}

// notReady returns the Ready condition of a VMI whose guest does not run.
func notReady(reason, message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	}
}

// notRunning returns the Ready condition of a VMI whose guest has not been started yet.
func notRunning() v1.VirtualMachineInstanceCondition {
	return notReady(v1.GuestNotRunningReason, "Guest VM is not reported as running")
}

// notSynchronized returns the condition of a VMI that cannot get on.
func notSynchronized(reason, message string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	}
}
