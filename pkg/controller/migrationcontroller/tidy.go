package migrationcontroller

import (
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// tidy removes what a failed migration leaves, and lets a migration go that is over.
func (s *Step) tidy(view View) {
	if view.Migration.Status.Phase == v1.MigrationFailed {
		if view.Pod != nil && !atTarget(view) {
			s.DeletePod = view.Pod.DeletionTimestamp == nil
			s.DeleteAttachments = view.Attachments
			s.forget(view)
		}
		s.dropState(view)
		ms := state(view)
		s.hide = ms != nil && view.VMI.Labels[v1.MigrationTargetNodeNameLabel] == ms.TargetNode &&
			view.VMI.Status.NodeName != ms.TargetNode
	}
	s.settleDisks(view)
	s.RemoveFinalizer = slices.Contains(view.Migration.Finalizers, v1.VirtualMachineInstanceMigrationFinalizer)
	s.Prune = surplus(view.Siblings)
	s.PrunePods = leftBy(s.Prune, view.Ended)
}

// forget takes the pod out of the VMI's active ones.
func (s *Step) forget(view View) {
	if view.VMI == nil {
		return
	}
	if life.Recorded(view.VMI, view.Pod) {
		s.VMIStatus = view.VMI.Status.DeepCopy()
		delete(s.VMIStatus.ActivePods, view.Pod.UID)
	}
}

// atTarget reports whether the guest is in the migration's pod, whatever the migration thinks.
func atTarget(view View) bool {
	return life.Alive(view.VMI) && view.VMI.Status.NodeName == view.Pod.Spec.NodeName &&
		view.Pod.Spec.NodeName != ""
}
