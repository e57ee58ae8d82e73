// Package snapshots has the rules of VirtualMachineSnapshots: the names of their parts, their progress, which volumes
// of a VM they have and why others are left out (volumes.go), what they report about the guest (indications.go), what
// holds a VM (holders.go), and how far a restore is (restores.go). It is pure. Names, texts of conditions and states
// are KubeVirt's, whose clients read them.
//
//	VirtualMachineSnapshot ──► VirtualMachineSnapshotContent ──► VolumeSnapshot of each claim
//	                           the VM's spec, the claims
package snapshots

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Finalizers and labels; KubeVirt's.
const (
	// SnapshotFinalizer keeps a VirtualMachineSnapshot until its VM is unlocked.
	SnapshotFinalizer = "snapshot.kubevirt.io/vmsnapshot-protection"
	// ContentFinalizer keeps a VirtualMachineSnapshotContent until its guest is thawed.
	ContentFinalizer = "snapshot.kubevirt.io/vmsnapshotcontent-protection"
	// SourceFinalizer protects a VM while a snapshot is made of it.
	SourceFinalizer = "snapshot.kubevirt.io/snapshot-source-protection"
	// LabelSourceName and LabelSourceNamespace are on VolumeSnapshots and have the name and namespace of the VM.
	LabelSourceName      = "snapshot.kubevirt.io/source-vm-name"
	LabelSourceNamespace = "snapshot.kubevirt.io/source-vm-namespace"
	// SourceKind is the only kind that a snapshot can be made of.
	SourceKind = "VirtualMachine"
)

// ContentName returns the name of a snapshot's content.
func ContentName(snapshot *v1beta1.VirtualMachineSnapshot) string {
	if status := snapshot.Status; status != nil && status.VirtualMachineSnapshotContentName != nil {
		return *status.VirtualMachineSnapshotContentName
	}
	return fmt.Sprintf("vmsnapshot-content-%s", snapshot.UID)
}

// VolumeSnapshotName returns the name of the VolumeSnapshot of a volume.
func VolumeSnapshotName(snapshot types.UID, volume string) string {
	return fmt.Sprintf("vmsnapshot-%s-volume-%s", snapshot, volume)
}

// StateVolume returns the name under which a VM's persistent state, which is no volume of its spec, is listed.
func StateVolume(vm string) string { return names.Shorten(vmstate.Prefix+"-"+vm, names.MaxLabel) }

func phase(snapshot *v1beta1.VirtualMachineSnapshot) v1beta1.VirtualMachineSnapshotPhase {
	if snapshot.Status == nil {
		return v1beta1.PhaseUnset
	}
	return snapshot.Status.Phase
}

// Succeeded reports whether the snapshot was made.
func Succeeded(snapshot *v1beta1.VirtualMachineSnapshot) bool {
	return phase(snapshot) == v1beta1.Succeeded
}

// PrefixedName returns the name of a restored claim by the policy PrefixTargetName.
func PrefixedName(target, volume string) string { return target + "-" + volume }

// Trouble returns why a snapshot has failed, or what its error is; empty for none.
func Trouble(snapshot *v1beta1.VirtualMachineSnapshot) string {
	if snapshot.Status == nil {
		return ""
	}
	if e := snapshot.Status.Error; e != nil && e.Message != nil {
		return *e.Message
	}
	for _, c := range snapshot.Status.Conditions {
		if c.Type == v1beta1.ConditionFailure && c.Status == corev1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason, "no reason is given")
		}
	}
	return ""
}

// Failed reports whether the snapshot will not be made.
func Failed(snapshot *v1beta1.VirtualMachineSnapshot) bool { return phase(snapshot) == v1beta1.Failed }

// Progressing reports whether it is still open what becomes of the snapshot.
func Progressing(snapshot *v1beta1.VirtualMachineSnapshot) bool {
	return !Succeeded(snapshot) && !Failed(snapshot)
}

// Ready reports whether all of the snapshot can be read. Restorable says whether that may be begun, too.
func Ready(snapshot *v1beta1.VirtualMachineSnapshot) bool {
	return snapshot.Status != nil && isTrue(snapshot.Status.ReadyToUse)
}

// Restorable reports whether the snapshot can be restored: one that is being deleted cannot.
func Restorable(snapshot *v1beta1.VirtualMachineSnapshot) bool {
	return Ready(snapshot) && snapshot.DeletionTimestamp == nil
}

// ContentReady does what Ready does, for a content.
func ContentReady(content *v1beta1.VirtualMachineSnapshotContent) bool {
	return content.Status != nil && isTrue(content.Status.ReadyToUse)
}

// ContentRestorable does what Restorable does, for a content.
func ContentRestorable(content *v1beta1.VirtualMachineSnapshotContent) bool {
	return ContentReady(content) && content.DeletionTimestamp == nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// FailureDeadline returns how long the snapshot may take from its creation; zero means no limit.
func FailureDeadline(snapshot *v1beta1.VirtualMachineSnapshot) time.Duration {
	if deadline := snapshot.Spec.FailureDeadline; deadline != nil {
		return deadline.Duration
	}
	return v1beta1.DefaultFailureDeadline
}

// Left returns how long the snapshot may still take; ok is false when it has no deadline.
func Left(snapshot *v1beta1.VirtualMachineSnapshot, now time.Time) (left time.Duration, ok bool) {
	deadline := FailureDeadline(snapshot)
	if deadline == 0 {
		return 0, false
	}
	return snapshot.CreationTimestamp.Add(deadline).Sub(now), true
}

// Exceeded reports whether the snapshot has failed or is to fail because its deadline has passed.
func Exceeded(snapshot *v1beta1.VirtualMachineSnapshot, now time.Time) bool {
	if !Progressing(snapshot) {
		return Failed(snapshot)
	}
	left, ok := Left(snapshot, now)
	return ok && left < 0
}

// Terminating reports whether nothing more is to be made for the snapshot.
func Terminating(snapshot *v1beta1.VirtualMachineSnapshot, now time.Time) bool {
	return snapshot.DeletionTimestamp != nil || Exceeded(snapshot, now)
}

// DeletesContent reports whether a content is deleted with its snapshot. One that is not ready always is.
func DeletesContent(
	snapshot *v1beta1.VirtualMachineSnapshot, content *v1beta1.VirtualMachineSnapshotContent,
) bool {
	policy := snapshot.Spec.DeletionPolicy
	return !ContentReady(content) || policy == nil || *policy == v1beta1.VirtualMachineSnapshotContentDelete
}
