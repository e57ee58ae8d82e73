package virtapi

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// change is the effect of an imperative request: a change of the VirtualMachine, its status, or its VMI, that the
// components then follow. The zero change is none.
type change struct {
	// strategy is the new run strategy.
	strategy v1.VirtualMachineRunStrategy
	// requests are the new status.stateChangeRequests, when setRequests is true.
	requests    []v1.VirtualMachineStateChangeRequest
	setRequests bool
	// grace is the VMI's new terminationGracePeriodSeconds.
	grace *int64
	// killPods asks to delete the VMI's pods without waiting for the guest.
	killPods bool
}

// start, stop and restart hold KubeVirt's rules of what a request means under each run strategy:
//
//	            start            stop             restart
//	Always      conflict         → Halted         stop, start
//	Halted      → Always         conflict         conflict
//	Manual      start            stop             stop, start
//	RerunOnF.   start            stop             stop, start
//	Once        conflict         → Halted         conflict
//
// A start that is to leave the guest paused is a request under Halted, too: virt-controller turns it into Always, since
// the strategy alone cannot say it.
//
// vmi is nil when there is none. The errors are those that the user gets.
func start(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options *v1.StartOptions) (change, error) {
	strategy, err := strategyOf(vm)
	if err != nil {
		return change{}, err
	}
	if renaming, _ := identity.RenamingOf(vm); renaming != nil { // one that cannot be read blocks, too
		return change{}, conflict(vm, fmt.Sprintf("VM is being renamed from %s; "+
			"`virtctl rename %[1]s %s -n %s` finishes that", renaming.Name, vm.Name, vm.Namespace))
	}
	if in, held := snapshots.RestoreOf(vm); held {
		return change{}, conflict(vm, fmt.Sprintf("Cannot start VM until restore %q completes", in))
	}
	if active(vmi) {
		return change{}, conflict(vm, "VM is already running")
	}
	if volumemigration.Unfinished(vm, vmi) {
		return change{}, conflict(vm, "VM needs manual recovery: "+
			volumemigration.RecoveryMessage(volumemigration.UpdateState(vm, vmi)))
	}
	switch strategy {
	case v1.RunStrategyHalted:
		if options.Paused {
			return startRequest(vm, vmi, true)
		}
		return change{strategy: v1.RunStrategyAlways}, nil
	case v1.RunStrategyManual:
		return startRequest(vm, vmi, options.Paused)
	case v1.RunStrategyRerunOnFailure:
		if vmi != nil && vmi.DeletionTimestamp == nil && vmi.Status.Phase == v1.Failed {
			return change{},
				conflict(vm, "RerunOnFailure does not support starting VM from failed state; it starts again by itself")
		}
		return startRequest(vm, vmi, options.Paused)
	default:
		return change{}, conflict(vm, fmt.Sprintf("%s does not support manual start requests", strategy))
	}
}

// startRequest asks for a start, once the last VMI is gone, and for one that leaves the guest paused.
func startRequest(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, paused bool) (change, error) {
	out, err := request(vm, vmi, vmi != nil)
	if err == nil && paused {
		last := &out.requests[len(out.requests)-1]
		last.Data = map[string]string{v1.StartRequestDataPausedKey: v1.StartRequestDataPausedTrue}
	}
	return out, err
}

// request asks for a start, after a stop when there still is a VMI to make room.
func request(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, stopFirst bool) (change, error) {
	now := vm.Status.StateChangeRequests
	startRequest := v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest}
	switch {
	case len(now) == 0 && stopFirst:
		return change{
			setRequests: true,
			requests:    []v1.VirtualMachineStateChangeRequest{runstrategy.StopRequest(vmi.UID), startRequest},
		}, nil
	case len(now) == 0:
		return change{setRequests: true, requests: []v1.VirtualMachineStateChangeRequest{startRequest}}, nil
	case len(now) == 1 && now[0].Action == v1.StopRequest:
		// It is on its way down: let it come up again.
		return change{setRequests: true, requests: append(now[:1:1], startRequest)}, nil
	default:
		return change{}, conflict(vm, "unable to complete request: stop/start already underway")
	}
}

func stop(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options *v1.StopOptions) (change, error) {
	strategy, err := strategyOf(vm)
	if err != nil {
		return change{}, err
	}
	if options.GracePeriod != nil {
		if *options.GracePeriod < 0 {
			return change{}, badRequest("gracePeriod has to be greater or equal to 0")
		}
		if err := surface.ValidateGracePeriod(*options.GracePeriod, field.NewPath("gracePeriod")); err != nil {
			return change{}, badRequest("gracePeriod " + surface.Detail(err))
		}
	}
	alive := life.Alive(vmi)
	out := change{}
	if alive && options.GracePeriod != nil && !equalGrace(vmi, *options.GracePeriod) {
		out.grace = options.GracePeriod
	}
	switch strategy {
	case v1.RunStrategyHalted:
		if !alive {
			return change{}, conflict(vm, "VM is not running")
		}
		before := vmi.Spec.TerminationGracePeriodSeconds
		if options.GracePeriod == nil || before != nil && *options.GracePeriod >= *before {
			return change{},
				conflict(vm, "VM is stopping; Halted only supports manual stop requests with a shorter graceperiod")
		}
		return out, nil
	case v1.RunStrategyAlways, v1.RunStrategyOnce:
		out.strategy = runstrategy.Stop(strategy, "").Strategy
		return out, nil
	}
	if vmi == nil || vmi.Status.Phase == v1.Succeeded ||
		vmi.Status.Phase == v1.Failed && strategy == v1.RunStrategyManual {
		if !runstrategy.Requested(vm, v1.StartRequest) {
			return change{}, conflict(vm, "VM is not running")
		}
		// The start has not happened yet, as when it waits after a failure: take it back.
		out.setRequests = true
		return out, nil
	}
	out.setRequests, out.requests = true, runstrategy.Stop(strategy, vmi.UID).Requests
	return out, nil
}

func restart(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options *v1.RestartOptions) (change, error) {
	strategy, err := strategyOf(vm)
	if err != nil {
		return change{}, err
	}
	out := change{}
	if grace := options.GracePeriodSeconds; grace != nil {
		switch {
		case *grace > 0:
			return change{}, badRequest("For force restart, only gracePeriod=0 is supported for now")
		case *grace < 0:
			return change{}, badRequest("gracePeriod has to be greater or equal to 0")
		}
		out.killPods = true
	}
	if strategy == v1.RunStrategyHalted || strategy == v1.RunStrategyOnce {
		return change{}, conflict(vm, fmt.Sprintf("run strategy %s does not support manual restart requests", strategy))
	}
	if vmi == nil {
		return change{}, conflict(vm, "VM is not running")
	}
	requested, err := request(vm, vmi, true)
	if err != nil {
		return change{}, err
	}
	out.setRequests, out.requests = true, requested.requests
	return out, nil
}

func strategyOf(vm *v1.VirtualMachine) (v1.VirtualMachineRunStrategy, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return "", conflict(vm, err.Error())
	}
	return strategy, nil
}

// active reports a VMI that a request can reach: it is not on its way out, and its node is heard of.
func active(vmi *v1.VirtualMachineInstance) bool {
	return life.Staying(vmi) && vmi.Status.Phase != v1.Unknown
}

func equalGrace(vmi *v1.VirtualMachineInstance, grace int64) bool {
	return vmi.Spec.TerminationGracePeriodSeconds != nil && *vmi.Spec.TerminationGracePeriodSeconds == grace
}
