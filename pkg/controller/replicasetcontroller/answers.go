package replicasetcontroller

import (
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
)

// outcome holds what the API server answered to a step's writes. The status counts VMIs and reports failures, so it is
// decided after them.
type outcome struct {
	made    []*v1.VirtualMachineInstance
	failure Failure
	err     error
}

// created takes the VMIs that were made, nil for others, and the error with which these were not. It reports whether
// the set goes on: not when it goes with its namespace.
func (o *outcome) created(made []*v1.VirtualMachineInstance, err error) bool {
	o.made = slices.DeleteFunc(made, func(instance *v1.VirtualMachineInstance) bool { return instance == nil })
	if frame.Ending(err) {
		return false
	}
	if err != nil {
		o.failure = Failure{Reason: ReasonFailedCreate, Message: err.Error()}
		o.err = fmt.Errorf("create VMI: %w", err)
	}
	return true
}

// deleted takes the answer to the deletion of VMIs.
func (o *outcome) deleted(err error) {
	if err != nil && o.failure.Reason == "" {
		o.failure = Failure{Reason: ReasonFailedDelete, Message: err.Error()}
	}
	o.err = errors.Join(o.err, err)
}

// status returns the set's status after the writes; gone reports VMIs that were deleted.
func (o *outcome) status(
	view View, gone func(client.Object) bool, now time.Time,
) v1.VirtualMachineInstanceReplicaSetStatus {
	mine := slices.DeleteFunc(slices.Concat(view.VMIs, o.made),
		func(instance *v1.VirtualMachineInstance) bool { return gone(instance) })
	return Status(view.Set, view.Selector, mine, o.failure, now)
}
