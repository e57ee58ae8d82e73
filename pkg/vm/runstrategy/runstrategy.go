// Package runstrategy has the rules by which a VirtualMachine is started and stopped: which field of its spec holds the
// run strategy, and what stops its guest under each. It is pure.
package runstrategy

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Set writes a run strategy into the field that a spec uses for it: spec.running, which says Always and Halted only, or
// spec.runStrategy. Only one of the two may be set.
func Set(spec *v1.VirtualMachineSpec, strategy v1.VirtualMachineRunStrategy) {
	if spec.Running != nil && (strategy == v1.RunStrategyAlways || strategy == v1.RunStrategyHalted) {
		spec.Running, spec.RunStrategy = new(strategy == v1.RunStrategyAlways), nil
		return
	}
	spec.Running, spec.RunStrategy = nil, &strategy
}

// Patch returns the merge patch of a spec that Set comes down to.
func Patch(spec *v1.VirtualMachineSpec, strategy v1.VirtualMachineRunStrategy) map[string]any {
	after := *spec
	Set(&after, strategy)
	if after.Running != nil {
		return map[string]any{"running": *after.Running}
	}
	patch := map[string]any{"runStrategy": *after.RunStrategy}
	if spec.Running != nil {
		patch["running"] = nil
	}
	return patch
}

// Change holds what to write to a VM to start or stop it; the zero Change writes nothing.
type Change struct {
	// Strategy is its new run strategy; empty leaves it.
	Strategy v1.VirtualMachineRunStrategy
	// Requests are its new status.stateChangeRequests; nil leaves them.
	Requests []v1.VirtualMachineStateChangeRequest
}

// None reports a change of nothing.
func (c Change) None() bool { return c.Strategy == "" && c.Requests == nil }

// Stop returns the change that ends the guest of a VM, the VMI of a UID: a strategy that would start it again becomes
// Halted, and under the others the end is requested. Under Halted it ends by itself.
func Stop(strategy v1.VirtualMachineRunStrategy, guest types.UID) Change {
	switch strategy {
	case v1.RunStrategyHalted:
		return Change{}
	case v1.RunStrategyAlways, v1.RunStrategyOnce:
		return Change{Strategy: v1.RunStrategyHalted}
	}
	return Change{Requests: []v1.VirtualMachineStateChangeRequest{StopRequest(guest)}}
}

// StopRequest returns the request of the end of a guest, the VMI of a UID.
func StopRequest(guest types.UID) v1.VirtualMachineStateChangeRequest {
	return v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &guest}
}

// Requested reports whether a VM was asked for something that has not begun.
func Requested(vm *v1.VirtualMachine, action v1.StateChangeRequestAction) bool {
	return slices.ContainsFunc(vm.Status.StateChangeRequests, func(r v1.VirtualMachineStateChangeRequest) bool {
		return r.Action == action
	})
}
