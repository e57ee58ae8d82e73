package conditions

import (
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// PhaseSince returns when the VMI last entered a phase; zero when it never did.
func PhaseSince(status *v1.VirtualMachineInstanceStatus, phase v1.VirtualMachineInstancePhase) time.Time {
	for _, transition := range slices.Backward(status.PhaseTransitionTimestamps) {
		if transition.Phase == phase {
			return transition.PhaseTransitionTimestamp.Time
		}
	}
	return time.Time{}
}
