package snapshots

import (
	"strings"

	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// RestoreComplete reports a restore after which the VM is as its snapshot.
func RestoreComplete(restore *v1beta1.VirtualMachineRestore) bool {
	return restore.Status != nil && isTrue(restore.Status.Complete)
}

// RestoreFailed reports a restore that gave up; KubeVirt asks for the condition alone, not for its status.
func RestoreFailed(restore *v1beta1.VirtualMachineRestore) bool {
	return restore.Status != nil && conditions.Find(restore.Status.Conditions, v1beta1.ConditionFailure) != nil
}

// RestoreEnded reports a restore that is complete or has failed: it has nothing more to do but to be deleted.
func RestoreEnded(restore *v1beta1.VirtualMachineRestore) bool {
	return RestoreComplete(restore) || RestoreFailed(restore)
}

// RevisionName returns the name of the copy of a ControllerRevision whose name has that of its owner in it: a
// snapshot's copy of its VM's, or a restored VM's of its snapshot's.
func RevisionName(revision, owner, successor string) string {
	return strings.Replace(revision, owner, successor, 1)
}
