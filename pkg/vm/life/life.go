// Package life says whether an instance has a guest that lives, or is to stay, whether a pod has ended or stays
// (pods.go), and which statuses of a VM are bad ones (statuses.go). A component that means more by "it runs" says what
// besides. It is pure.
package life

import v1 "kubevirt.io/api/core/v1"

// Alive reports an instance that has not ended: its guest runs, will run, or is being ended. nil is none.
func Alive(vmi *v1.VirtualMachineInstance) bool { return vmi != nil && !vmi.IsFinal() }

// Staying reports an instance that lives and that nobody has begun to end.
func Staying(vmi *v1.VirtualMachineInstance) bool { return Alive(vmi) && vmi.DeletionTimestamp == nil }
