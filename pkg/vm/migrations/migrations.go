// Package migrations answers by a VirtualMachineInstance's status whether it migrates, and whether it can; and it
// writes and reads what keeps a guest on its node (obstacles.go). Every component asks it, so that all mean the same.
package migrations

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// GuestEnded is why a migration has failed whose guest ended before it had moved: what the launcher says, and what
// virt-controller says unless the launcher knows more.
const GuestEnded = "the guest has ended"

// Migratable reports whether the VMI's node says that its guest can move.
func Migratable(vmi *v1.VirtualMachineInstance) bool {
	return conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable)
}

// Refusal returns in KubeVirt's words why the VMI's node does not let its guest move, or "" when it does, or has not
// said.
func Refusal(vmi *v1.VirtualMachineInstance) string {
	c := conditions.With(vmi.Status.Conditions, v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse)
	if c == nil {
		return ""
	}
	return Cannot(c.Reason, c.Message)
}

// Cannot returns in KubeVirt's words why a guest is not migrated.
func Cannot(reason, message string) string {
	return fmt.Sprintf("Cannot migrate VMI, Reason: %s, Message: %s", reason, message)
}

// Over reports whether a migration has ended, well or not. Of these three marks each has been seen without the others.
func Over(state *v1.VirtualMachineInstanceMigrationState) bool {
	return state.EndTimestamp != nil || state.Completed || state.Failed
}

// Succeeded reports whether a migration has ended and the guest has moved. state may be nil.
func Succeeded(state *v1.VirtualMachineInstanceMigrationState) bool {
	return state != nil && state.Completed && !state.Failed
}

// Failed reports whether a migration has ended and the guest has not moved. state may be nil.
func Failed(state *v1.VirtualMachineInstanceMigrationState) bool { return state != nil && state.Failed }

// Fail notes that a migration has failed, and whether it was cancelled.
func Fail(state *v1.VirtualMachineInstanceMigrationState, reason string, cancelled bool, now time.Time) {
	end := metav1.NewTime(now).Rfc3339Copy()
	state.EndTimestamp, state.Completed, state.Failed, state.FailureReason = &end, true, true, reason
	if cancelled {
		state.AbortStatus = v1.MigrationAbortSucceeded
	}
}

// Aborting reports whether a migration is to be cancelled, and nobody has said yet whether that was possible.
func Aborting(state *v1.VirtualMachineInstanceMigrationState) bool {
	return state.AbortRequested && state.AbortStatus == v1.MigrationAbortInProgress
}

// NotAborted notes of a migration that is over that cancelling it has failed, if it was to be cancelled and was not:
// the status that KubeVirt has for a job which could not be aborted any more. virt-controller says so, as the target's
// virt-handler may not.
func NotAborted(state *v1.VirtualMachineInstanceMigrationState) {
	if Aborting(state) {
		state.AbortStatus = v1.MigrationAbortFailed
	}
}

// AtTarget reports whether the last migration of a VMI has succeeded and its status names the target as its node.
func AtTarget(status *v1.VirtualMachineInstanceStatus) bool {
	return Succeeded(status.MigrationState) && status.NodeName == status.MigrationState.TargetNode
}

// UnderWay reports whether the VMI's nodes know of a migration and it is not over.
func UnderWay(vmi *v1.VirtualMachineInstance) bool {
	state := vmi.Status.MigrationState
	return state != nil && !Over(state)
}

// Begun reports whether a migration is under way and the source has begun to send the guest.
func Begun(vmi *v1.VirtualMachineInstance) bool {
	return UnderWay(vmi) && vmi.Status.MigrationState.StartTimestamp != nil
}
