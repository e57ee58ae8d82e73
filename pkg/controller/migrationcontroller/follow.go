package migrationcontroller

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// follow reads the progress of the migration from the VMI, and ends it where no node can.
func (s *Step) follow(view View) {
	ms := state(view)
	s.Status.MigrationState = ms.DeepCopy()
	s.showTo = ms.TargetNode
	if migrations.Over(ms) && migrations.Aborting(ms) { // no node has said how that went
		s.VMIStatus = view.VMI.Status.DeepCopy()
		migrations.NotAborted(s.VMIStatus.MigrationState)
		migrations.NotAborted(s.Status.MigrationState)
	}
	switch {
	case migrations.Failed(ms):
		reason := ms.FailureReason
		if view.TargetLost != "" {
			// What the source saw of it is a connection that ended.
			reason = view.TargetLost + ": " + reason
			s.Status.MigrationState.FailureReason = reason
		}
		s.fail(view, reason)
		return
	case migrations.Succeeded(ms):
		s.succeed(view)
		return
	case ms.StartTimestamp != nil:
		s.phase(v1.MigrationRunning, view.Now)
	case ms.TargetNodeAddress != "":
		s.phase(v1.MigrationTargetReady, view.Now)
	default:
		s.phase(v1.MigrationPreparingTarget, view.Now)
		if reason := s.hopeless(view); reason != "" {
			s.giveUp(view, reason, false)
			return
		}
	}
	if view.Migration.DeletionTimestamp == nil {
		switch {
		case view.TargetLost == "":
		case ms.TargetNodeAddress == "":
			s.giveUp(view, view.TargetLost, false)
		default:
			s.abort(view)
		}
		return
	}
	s.abortRequested(view)
	if ms.TargetNodeAddress == "" {
		// The source does not know yet where the guest should go, so nothing has begun.
		s.giveUp(view, "cancelled before it began", true)
		return
	}
	s.abort(view)
}

// hopeless returns why a target that is being prepared will not be ready.
func (s *Step) hopeless(view View) string {
	switch {
	case view.Pod == nil:
		return "its pod was deleted"
	case !life.PodStaying(view.Pod):
		return "its pod " + view.Pod.Name + " has ended: " + ended(view.Pod)
	}
	if why := refusal(view); why != "" {
		return why
	}
	left := prepareTimeout - view.Now.Sub(since(&s.Status, v1.MigrationPreparingTarget))
	if left <= 0 {
		return fmt.Sprintf("node %s was not ready for the guest within %s", view.Pod.Spec.NodeName, prepareTimeout)
	}
	s.RequeueAfter = left
	return ""
}

// giveUp ends a migration whose source does not know yet where to go. Should the target have said so
// meanwhile, the write fails, and the next pass sees it.
func (s *Step) giveUp(view View, reason string, cancelled bool) {
	status := view.VMI.Status.DeepCopy()
	ms := status.MigrationState
	migrations.Fail(ms, reason, cancelled, view.Now)
	ms.AbortRequested = ms.AbortRequested || cancelled
	s.VMIStatus = status
	s.Status.MigrationState = ms.DeepCopy()
	s.fail(view, reason)
}

func (s *Step) succeed(view View) {
	s.phase(v1.MigrationSucceeded, view.Now)
	s.event(corev1.EventTypeNormal, ReasonSuccessfulMigration, "Source node reported migration succeeded")
	s.RemoveFinalizer = true
}

// fail ends the migration; the next pass cleans up what is left of it. Its status says so, too, where no node has.
func (s *Step) fail(view View, reason string) {
	switch ms := s.Status.MigrationState; {
	case ms == nil:
		s.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			MigrationUID: view.Migration.UID,
			Failed:       true, FailureReason: reason,
		}
	case !migrations.Failed(ms):
		migrations.Fail(ms, reason, false, view.Now)
	case ms.FailureReason == "":
		ms.FailureReason = reason
	}
	migrations.NotAborted(s.Status.MigrationState)
	s.phase(v1.MigrationFailed, view.Now)
	s.event(corev1.EventTypeWarning, ReasonFailedMigration, strings.TrimSuffix("Migration failed: "+reason, ": "))
}

// guestEnded returns why a migration failed whose guest has ended: what the guest's node says about the migration, or
// just that the guest ended.
func guestEnded(view View) string {
	if ms := state(view); migrations.Failed(ms) && ms.FailureReason != "" {
		return migrations.GuestEnded + ": " + strings.TrimPrefix(ms.FailureReason, migrations.GuestEnded+": ")
	}
	return migrations.GuestEnded
}
