package describecmd

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestTopology(t *testing.T) {
	if got := topology(1, 2, 1); got != "1 socket, 2 cores, 1 thread" {
		t.Errorf("%q", got)
	}
}

func TestOutcome(t *testing.T) {
	for want, s := range map[string]v1.VirtualMachineInstanceMigrationState{
		"going on":  {},
		"completed": {Completed: true},
		"failed":    {Completed: true, Failed: true},
		"cancelled": {Completed: true, Failed: true, AbortRequested: true},
	} {
		if got := outcome(&s); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
