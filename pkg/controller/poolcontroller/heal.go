package poolcontroller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Defaults of spec.autohealing; KubeVirt's.
const (
	defaultFailures = 3
	defaultFailing  = 5 * time.Minute
)

// heal finds the VMs that are given up, to be made anew with disks of their own, and gives the others.
func (s *Step) heal(view View, staying []Machine) []Machine {
	healing := view.Pool.Spec.Autohealing
	if healing == nil {
		return staying
	}
	return slices.DeleteFunc(staying, func(m Machine) bool {
		wait, hopeless := failing(m.VM, healing, view.Now)
		switch {
		case hopeless && len(s.Heal) < burst:
			s.Heal = append(s.Heal, m.VM)
			return true
		case wait > 0:
			s.after(wait)
		}
		return false
	})
}

// failing reports whether a VM has failed often enough, or has been in trouble for long enough. wait is the time after
// which a VM in trouble will have been.
func failing(
	machine *v1.VirtualMachine, healing *v1beta1.VirtualMachinePoolAutohealingStrategy, now time.Time,
) (wait time.Duration, hopeless bool) {
	failures, patience := defaultFailures, defaultFailing
	if healing.StartUpFailureThreshold != nil {
		failures = int(*healing.StartUpFailureThreshold)
	}
	if healing.MinFailingToStartDuration != nil {
		patience = healing.MinFailingToStartDuration.Duration
	}
	if failure := machine.Status.StartFailure; failure != nil && failure.ConsecutiveFailCount >= failures {
		return 0, true
	}
	ready := conditions.Find(machine.Status.Conditions, v1.VirtualMachineReady)
	if !slices.Contains(life.CannotStart(), machine.Status.PrintableStatus) || ready == nil ||
		ready.Status != corev1.ConditionFalse {
		return 0, false
	}
	wait = ready.LastTransitionTime.Add(patience).Sub(now)
	return max(wait, 0), wait <= 0
}
