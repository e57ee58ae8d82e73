package poolcontroller

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
)

// outcome holds what the API server answered to a step's writes. The status counts VMs and reports failures, so it is
// decided after them.
type outcome struct {
	made []*v1.VirtualMachine
	// failure says why not all that the step asks for was done.
	failure Failure
	errs    []error
}

// add takes the answer to a part of the step. The status has the first failure; that another wrote or deleted an object
// meanwhile is none.
func (o *outcome) add(reason string, err error) {
	if err == nil {
		return
	}
	o.errs = append(o.errs, err)
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && o.failure.Reason == "" {
		o.failure = Failure{Reason: reason, Message: err.Error()}
	}
}

// status returns the pool's status after the writes. What was deleted counts until it is gone.
func (o *outcome) status(view View, step *Step, now time.Time) v1beta1.VirtualMachinePoolStatus {
	var machines []*v1.VirtualMachine
	for _, m := range view.Machines {
		if !slices.Contains(step.Release, m.VM) {
			machines = append(machines, m.VM)
		}
	}
	return Status(view.Pool, view.Selector, append(machines, o.made...), o.failure, now)
}
