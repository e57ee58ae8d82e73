package life

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestAlive(t *testing.T) {
	for name, test := range map[string]struct {
		phase                   v1.VirtualMachineInstancePhase
		deleted                 bool
		alive, staying, running bool
	}{
		"new":           {alive: true, staying: true},
		"scheduled":     {phase: v1.Scheduled, alive: true, staying: true},
		"running":       {phase: v1.Running, alive: true, staying: true, running: true},
		"nobody knows":  {phase: v1.Unknown, alive: true, staying: true},
		"being ended":   {phase: v1.Running, deleted: true, alive: true},
		"shut down":     {phase: v1.Succeeded},
		"crashed":       {phase: v1.Failed},
		"ended, leaves": {phase: v1.Failed, deleted: true},
	} {
		vmi := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{Phase: test.phase}}
		if test.deleted {
			vmi.DeletionTimestamp = &metav1.Time{}
		}
		if alive, staying, running := Alive(vmi), Staying(vmi), Running(vmi); alive != test.alive ||
			staying != test.staying || running != test.running {
			t.Errorf("%s: alive %v, staying %v, running %v", name, alive, staying, running)
		}
	}
	if Alive(nil) || Staying(nil) || Running(nil) {
		t.Error("no instance lives")
	}
}

func TestStatuses(t *testing.T) {
	for status, want := range map[v1.VirtualMachinePrintableStatus]struct{ cannotStart, broken bool }{
		v1.VirtualMachineStatusRunning:          {},
		v1.VirtualMachineStatusStarting:         {},
		v1.VirtualMachineStatusStopped:          {},
		v1.VirtualMachineStatusCrashLoopBackOff: {true, true},
		v1.VirtualMachineStatusPvcNotFound:      {true, true},
		v1.VirtualMachineStatusUnknown:          {false, true},
	} {
		if slices.Contains(CannotStart(), status) != want.cannotStart ||
			slices.Contains(Broken(), status) != want.broken {
			t.Errorf("%s: want %+v", status, want)
		}
	}
}
