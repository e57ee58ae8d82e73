package vmcontroller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/waits"
)

const (
	// backoffBase doubles with each failure up to backoffMax.
	backoffBase = 10 * time.Second
	backoffMax  = 5 * time.Minute
	// healthy is the time that a guest must run for its VM's failures to be forgotten.
	healthy = 10 * time.Minute
)

// countFailure keeps the book of failures: one for each VMI that failed under a strategy that starts
// anew, none after ten minutes of health. A guest that ran and crashed for the first time is started
// again at once; one that never ran, or crashed again, waits.
func (d *Decision) countFailure(view View, strategy v1.VirtualMachineRunStrategy) {
	if strategy != v1.RunStrategyAlways && strategy != v1.RunStrategyRerunOnFailure {
		d.StartFailure = nil
		return
	}
	if view.VMI == nil || view.VMI.DeletionTimestamp != nil {
		return
	}
	running := conditions.PhaseSince(&view.VMI.Status, v1.Running)
	switch view.VMI.Status.Phase {
	case v1.Running:
		if d.StartFailure == nil || running.IsZero() {
			return
		}
		if left := healthy - view.Now.Sub(running); left > 0 {
			d.RequeueAfter = left
			return
		}
		d.StartFailure = nil
	case v1.Failed:
		switch reason := view.VMI.Status.Reason; {
		case reason == vmicontroller.ReasonNodeUnresponsive:
			return // that its node was lost is no fault of the guest, which should run again soon
		case reason == names.ReasonPodTerminated && !running.IsZero():
			return // nor that it was shut down to leave its node
		}
		if d.StartFailure != nil && d.StartFailure.LastFailedVMIUID == view.VMI.UID {
			return
		}
		count := 1
		failed := conditions.PhaseSince(&view.VMI.Status, v1.Failed)
		if d.StartFailure != nil && (running.IsZero() || failed.Sub(running) < healthy) {
			count += d.StartFailure.ConsecutiveFailCount
		}
		wait := waits.After(backoffBase, backoffMax, count)
		if count == 1 && !running.IsZero() {
			wait = 0
		}
		d.StartFailure = &v1.VirtualMachineStartFailure{
			ConsecutiveFailCount: count,
			LastFailedVMIUID:     view.VMI.UID,
			RetryAfterTimestamp:  &metav1.Time{Time: view.Now.Add(wait).Truncate(time.Second)},
		}
	}
}

// retryIn returns the remaining delay before the next start.
func retryIn(failure *v1.VirtualMachineStartFailure, now time.Time) time.Duration {
	if failure == nil || failure.RetryAfterTimestamp == nil {
		return 0
	}
	return max(0, failure.RetryAfterTimestamp.Sub(now))
}
