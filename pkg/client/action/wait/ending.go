package wait

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
)

// guest returns the instance that counts: one that is to end, as after a restart was requested, does not. The VM and
// its instance are watched apart, so that the request may be gone from the VM before the instance shows that it ends.
func (s State) guest() *v1.VirtualMachineInstance {
	if s.VMI == nil || s.VMI.DeletionTimestamp != nil || s.ending != "" && s.VMI.UID == s.ending {
		return nil
	}
	return s.VMI
}

// restarting reports a restart that was requested and has not begun.
func (s State) restarting() bool {
	return s.VM != nil && runstrategy.Requested(s.VM, v1.StopRequest) && runstrategy.Requested(s.VM, v1.StartRequest)
}

// note keeps which instance was asked to end.
func (s *State) note() {
	if s.VM == nil {
		return
	}
	for _, r := range s.VM.Status.StateChangeRequests {
		if r.Action == v1.StopRequest && r.UID != nil {
			s.ending = *r.UID
		}
	}
}

// ofGuest are the conditions that a VM has from its instance.
var ofGuest = []string{
	string(v1.VirtualMachineInstanceReady), string(v1.VirtualMachineInstanceAgentConnected),
	string(v1.VirtualMachineInstancePaused), string(v1.VirtualMachineInstanceIsMigratable),
}

// shown reports whether a condition that is True is of a guest that counts, and not what the VM still says of the one
// before. What is no matter of a guest always is.
func (s State) shown(kind, status string) bool {
	same := func(other string) bool { return strings.EqualFold(kind, other) }
	if !strings.EqualFold(status, string(corev1.ConditionTrue)) || !slices.ContainsFunc(ofGuest, same) {
		return true
	}
	guest := s.guest()
	if guest == nil {
		return false
	}
	for _, c := range guest.Status.Conditions {
		if same(string(c.Type)) {
			return c.Status == corev1.ConditionTrue
		}
	}
	return guest.IsRunning()
}
