package snapshots

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"
)

// RestoreOf returns the name of the restore that a VM is held for, which may be empty: the VM's disks are being
// replaced, and it does not start. held is false when there is none.
func RestoreOf(vm *v1.VirtualMachine) (restore string, held bool) {
	if by := vm.Status.RestoreInProgress; by != nil {
		return *by, true
	}
	return "", false
}

// SnapshotOf returns the name of the snapshot that a VM is held for, which may be empty: its volumes and its running
// state do not change. held is false when there is none.
func SnapshotOf(vm *v1.VirtualMachine) (snapshot string, held bool) {
	if by := vm.Status.SnapshotInProgress; by != nil {
		return *by, true
	}
	return "", false
}

// Restoring reports whether a VM is held for a restore.
func Restoring(vm *v1.VirtualMachine) bool {
	_, held := RestoreOf(vm)
	return held
}

// Locked reports whether a VM is locked by the snapshot of a name.
func Locked(vm *v1.VirtualMachine, snapshot string) bool {
	by, held := SnapshotOf(vm)
	return held && by == snapshot && slices.Contains(vm.Finalizers, SourceFinalizer)
}

// Claimed reports whether a VM is locked by the snapshot of a name, or half so: the finalizer may be left when nobody
// locks it.
func Claimed(vm *v1.VirtualMachine, snapshot string) bool {
	if by, held := SnapshotOf(vm); held {
		return by == snapshot
	}
	return slices.Contains(vm.Finalizers, SourceFinalizer)
}

// What Holder says that a VM is held by.
const (
	HolderRestore  = "restore"
	HolderSnapshot = "snapshot"
)

// Holder returns what holds a VM, HolderRestore or HolderSnapshot, and the name of that; "" when nothing does, or only
// the restore of the name given, which may be empty.
func Holder(vm *v1.VirtualMachine, restore string) (kind, name string) {
	if by, held := RestoreOf(vm); held && by != restore {
		return HolderRestore, by
	}
	if by, held := SnapshotOf(vm); held {
		return HolderSnapshot, by
	}
	return "", ""
}
