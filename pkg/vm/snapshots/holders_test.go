package snapshots

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestHolder(t *testing.T) {
	for name, test := range map[string]struct {
		restore, snapshot *string
		kind, holder      string
	}{
		"nothing":         {},
		"a snapshot":      {snapshot: new("snap"), kind: "snapshot", holder: "snap"},
		"another restore": {restore: new("back"), kind: "restore", holder: "back"},
		"this restore":    {restore: new("mine")},
		"both":            {restore: new("back"), snapshot: new("snap"), kind: "restore", holder: "back"},
		"and a snapshot":  {restore: new("mine"), snapshot: new("snap"), kind: "snapshot", holder: "snap"},
	} {
		vm := &v1.VirtualMachine{}
		vm.Status.RestoreInProgress, vm.Status.SnapshotInProgress = test.restore, test.snapshot
		if kind, holder := Holder(vm, "mine"); kind != test.kind || holder != test.holder {
			t.Errorf("%s: %s %s", name, kind, holder)
		}
	}
}

// The snapshot's finalizer is there before the status says that the VM is locked, and after.
func TestLocked(t *testing.T) {
	for name, test := range map[string]struct {
		snapshot        *string
		finalizer       bool
		locked, claimed bool
	}{
		"nothing":          {},
		"the finalizer":    {finalizer: true, claimed: true},
		"the status":       {snapshot: new("mine"), claimed: true},
		"both":             {snapshot: new("mine"), finalizer: true, locked: true, claimed: true},
		"another's, whole": {snapshot: new("other"), finalizer: true},
		"another's, begun": {snapshot: new("other")},
		"an unnamed one's": {snapshot: new(""), finalizer: true},
	} {
		vm := &v1.VirtualMachine{}
		vm.Status.SnapshotInProgress = test.snapshot
		if test.finalizer {
			vm.Finalizers = []string{"another", SourceFinalizer}
		}
		locked, claimed := Locked(vm, "mine"), Claimed(vm, "mine")
		if locked != test.locked || claimed != test.claimed {
			t.Errorf("%s: locked %t, claimed %t", name, locked, claimed)
		}
		if by, held := SnapshotOf(vm); held != (test.snapshot != nil) || held && by != *test.snapshot {
			t.Errorf("%s: held for snapshot %q, %t", name, by, held)
		}
	}
}

func TestRestoring(t *testing.T) {
	for name, test := range map[string]struct {
		restore *string
		want    string
		held    bool
	}{
		"nothing": {}, "a restore": {new("back"), "back", true}, "an unnamed one": {new(""), "", true},
	} {
		vm := &v1.VirtualMachine{}
		vm.Status.RestoreInProgress = test.restore
		if by, held := RestoreOf(vm); by != test.want || held != test.held || Restoring(vm) != test.held {
			t.Errorf("%s: held for restore %q, %t", name, by, held)
		}
	}
}
