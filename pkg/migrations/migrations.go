// Package migrations answers by a VirtualMachineInstance's status whether it migrates. Every component asks it, so that all
// mean the same.
package migrations

import v1 "kubevirt.io/api/core/v1"

// Over reports whether a migration has ended, well or not. Of these three marks each has been seen without the others.
func Over(state *v1.VirtualMachineInstanceMigrationState) bool {
	return state.EndTimestamp != nil || state.Completed || state.Failed
}

// UnderWay reports whether a migration of the VMI has been told to its nodes and is not over.
func UnderWay(vmi *v1.VirtualMachineInstance) bool {
	state := vmi.Status.MigrationState
	return state != nil && !Over(state)
}

// Begun reports whether a migration is under way and the source has begun to send the guest.
func Begun(vmi *v1.VirtualMachineInstance) bool {
	return UnderWay(vmi) && vmi.Status.MigrationState.StartTimestamp != nil
}
