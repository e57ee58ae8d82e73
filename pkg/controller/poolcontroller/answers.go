package poolcontroller

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/service/frame"
)

// revisionMade takes the answer to the creation of a pool's ControllerRevision. there is the one of that name, its own
// or another's.
func revisionMade(p *v1beta1.VirtualMachinePool, there *appsv1.ControllerRevision, err error) error {
	switch {
	case err == nil, frame.Ending(err):
		return nil // Or the pool goes with its namespace.
	case apierrors.IsAlreadyExists(err) && metav1.IsControlledBy(there, p):
		return nil // The cache has not seen it; its event will come.
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("ControllerRevision %q exists and does not belong to this pool; delete it", there.Name)
	}
	return fmt.Errorf("create ControllerRevision: %w", err)
}

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
