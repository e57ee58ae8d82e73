package snapshot

import (
	"fmt"
	"slices"

	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Reached describes a snapshot that was taken: how many volumes it has, and what the guest did meanwhile.
func Reached(s *snapshotv1beta1.VirtualMachineSnapshot) string {
	volumes := 0
	if s.Status != nil && s.Status.SnapshotVolumes != nil {
		volumes = len(s.Status.SnapshotVolumes.IncludedVolumes)
	}
	return fmt.Sprintf("virtualmachinesnapshot.snapshot.kubevirt.io/%s is ready: %s, %s", s.Name, counted(volumes),
		quiet(Indications(s)))
}

// quiet returns what the guest did while its volumes were taken.
func quiet(indications []string) string {
	has := func(i snapshotv1beta1.Indication) bool { return slices.Contains(indications, string(i)) }
	switch {
	case has(vmsnapshots.WithMemory):
		return "and the guest's memory; the guest stood still while it was saved"
	case has(snapshotv1beta1.VMSnapshotQuiesceTimeoutIndication):
		return "and the guest wrote again before all were taken"
	case has(snapshotv1beta1.VMSnapshotGuestAgentIndication):
		return "and the guest was frozen by its agent"
	case has(snapshotv1beta1.VMSnapshotPausedIndication):
		return "and the guest was paused"
	case has(snapshotv1beta1.VMSnapshotNoGuestAgentIndication):
		return "and the guest has no agent that could freeze it"
	case has(snapshotv1beta1.VMSnapshotOnlineSnapshotIndication):
		return "and the guest ran"
	}
	return "and the VM was stopped"
}

// ReachedRestore describes what a restore has done.
func ReachedRestore(r *snapshotv1beta1.VirtualMachineRestore) string {
	volumes := 0
	if r.Status != nil {
		volumes = len(r.Status.Restores)
	}
	return fmt.Sprintf("virtualmachine.kubevirt.io/%s is restored: it has the spec of snapshot %s and %s of it",
		r.Spec.Target.Name, r.Spec.VirtualMachineSnapshotName, counted(volumes))
}

func counted(volumes int) string {
	switch volumes {
	case 0:
		return "no volume"
	case 1:
		return "1 volume"
	}
	return fmt.Sprintf("%d volumes", volumes)
}
