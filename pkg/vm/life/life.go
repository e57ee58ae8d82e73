// Package life says whether a VMI has a guest that lives, or is to stay, whether a pod has ended or stays (pods.go),
// whose it says it is (owner.go) and whether it is a VMI's own (launchers.go), which pods of virtkit's components are
// there and ready (components.go), which nodes take VMs (nodes.go), how long a guest has to shut down (grace.go),
// and which statuses of a VM are bad ones (statuses.go). A component that means more by "it runs" checks the rest
// itself. It is pure.
package life

import v1 "kubevirt.io/api/core/v1"

// Alive reports whether a VMI has not ended: its guest runs, will run, or is being ended. nil means no VMI.
func Alive(vmi *v1.VirtualMachineInstance) bool { return vmi != nil && !vmi.IsFinal() }

// Staying reports whether a VMI lives and nobody has begun to end it.
func Staying(vmi *v1.VirtualMachineInstance) bool { return Alive(vmi) && vmi.DeletionTimestamp == nil }

// Running reports whether a VMI's guest runs, as far as its node has said, and nobody has begun to end it.
func Running(vmi *v1.VirtualMachineInstance) bool {
	return Staying(vmi) && vmi.Status.Phase == v1.Running
}
