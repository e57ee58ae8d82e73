// Package snapshotcontroller makes snapshots of VMs, as KubeVirt does. It has two reconcilers:
//
//	VirtualMachineSnapshot ──Next──► locks the VM (status.snapshotInProgress and a finalizer),
//	                                 makes the VirtualMachineSnapshotContent, writes status, unlocks the VM
//	…Content ──NextContent──► freezes the guest, makes a VolumeSnapshot of each claim, thaws the guest
//
// While the guest is frozen, the content records that (FreezeAnnotation), so that a virt-controller that starts anew
// undoes it; it also thaws the guest of a content without a record yet. When nobody does, the guest's launcher thaws
// it.
package snapshotcontroller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// ReasonContentCreated is the reason of an event; KubeVirt's.
const ReasonContentCreated = "SuccessfulVirtualMachineSnapshotContentCreate"

// View holds what a decision about a VirtualMachineSnapshot depends on.
type View struct {
	Snapshot *v1beta1.VirtualMachineSnapshot
	// VM is the snapshot's, nil when it is gone. VMI is the VM's, nil for none.
	VM      *v1.VirtualMachine
	VMI     *v1.VirtualMachineInstance
	Content *v1beta1.VirtualMachineSnapshotContent
	// Volumes are the VM's as long as the snapshot is not made; Troubles are, by claim, why it cannot be snapshotted
	// yet.
	Volumes  []snapshots.Volume
	Troubles map[string]string
	// Served says that the cluster has VolumeSnapshots, Classed that it has a VolumeSnapshotClass.
	Served, Classed bool
	// Pods use the VM's claims although it is off.
	Pods int
	// HolderGone says that the snapshot by which the VM is locked does not exist.
	HolderGone bool
	Now        time.Time
}

// Step holds what to write, in the order of its fields.
type Step struct {
	// AddFinalizer is done alone: its event brings the next step.
	AddFinalizer bool
	// Lock and Unlock concern the VM. Lock and CreateContent are done alone, as AddFinalizer is. Unlock comes before
	// Status, so that a change of the VM is not refused once the snapshot says that it is finished. Release, of the
	// VM's finalizer, comes after Status.
	Lock          bool
	CreateContent bool
	Unlock        bool
	Release       bool
	DeleteContent bool
	// Later says that Status is not written now: another event brings a step which knows more.
	Later  bool
	Status *v1beta1.VirtualMachineSnapshotStatus
	// RemoveFinalizer lets the snapshot be deleted.
	RemoveFinalizer bool
	frame.Requeue
}

// Next decides.
func Next(view View) Step {
	snapshot := view.Snapshot
	terminating := snapshots.Terminating(snapshot, view.Now)
	if !terminating && !slices.Contains(snapshot.Finalizers, snapshots.SnapshotFinalizer) {
		return Step{AddFinalizer: true}
	}
	if left := view.settling(); left > 0 {
		return Step{Requeue: frame.Requeue{RequeueAfter: left}}
	}
	var step Step
	locked, waits := view.VM != nil && snapshots.Locked(view.VM, snapshot.Name), ""
	switch {
	case view.VM == nil:
	case view.holds() && view.releasable():
		step.Unlock, locked = true, false
		_, held := snapshots.SnapshotOf(view.VM)
		step.Later = held && snapshots.Progressing(snapshot) && !terminating
	case snapshots.Progressing(snapshot) && !terminating && !view.made():
		if !locked {
			waits = view.waits()
			if waits == "" && snapshots.WantsMemory(snapshot) && view.Content == nil {
				waits = snapshots.MemoryTrouble(view.VMI, view.Volumes)
			}
			if waits == "" {
				step.Lock, locked = true, true
			} else {
				step.RequeueAfter = retry
				// A lock that was half made when its maker ended would keep what it waits for from being fixed.
				step.Unlock = view.holds() && view.Content == nil
			}
		}
		step.CreateContent = locked && view.Content == nil
	}
	content := view.Content
	step.DeleteContent = terminating && content != nil && content.DeletionTimestamp == nil &&
		snapshots.DeletesContent(snapshot, content)
	// Until the content says when it was taken there is nothing new to say.
	under := locked || complete(content) && !taken(content)
	step.Status = status(view, under, waits)
	step.Release = step.Unlock && (terminating || !complete(content) || taken(content))
	if left := view.young(); left > 0 && !terminating && under && content != nil && step.Status.Error == nil {
		step.Later, step.RequeueAfter = true, left
	}
	step.RemoveFinalizer = snapshot.DeletionTimestamp != nil && (!view.holds() || step.Unlock)
	if left, ok := snapshots.Left(snapshot, view.Now); ok && step.Status.Phase == v1beta1.InProgress &&
		left > 0 && (step.RequeueAfter == 0 || left < step.RequeueAfter) {
		step.RequeueAfter = left + time.Millisecond
	}
	return step
}

// refused takes the answer to a content that the API server refuses, because of a quota for example: the status that
// says so. It is tried again. It is nil for any other error.
func (s *Step) refused(view View, err error) *v1beta1.VirtualMachineSnapshotStatus {
	if !frame.Refused(err) {
		return nil
	}
	status := s.Status.DeepCopy()
	if old := status.Error; old == nil || old.Message == nil || *old.Message != err.Error() {
		status.Error = newError(view.Now, err.Error())
	}
	return status
}

// young returns for how long nothing has to be said yet of a snapshot that goes on as it should: a write would keep the
// frozen guest waiting, or who waits for the snapshot, and most are made by then.
func (view *View) young() time.Duration {
	made := snapshots.Succeeded(view.Snapshot) || taken(view.Content)
	if left := view.Snapshot.CreationTimestamp.Add(brief).Sub(view.Now); left <= brief && !made {
		return max(left, 0)
	}
	return 0
}

// settle is how long after its deadline a snapshot waits for the guest to write again, which is when the content says
// how it was quiesced.
const settle = 2 * time.Second

// settling returns for how long a snapshot whose deadline has passed waits still for its content to say how the guest
// was quiesced: with the content that is lost.
func (view *View) settling() time.Duration {
	left, ok := snapshots.Left(view.Snapshot, view.Now)
	if !ok || left >= 0 || view.Snapshot.DeletionTimestamp != nil || !snapshots.Progressing(view.Snapshot) ||
		view.Content == nil || view.Content.DeletionTimestamp != nil || !recordOf(view.Content.Annotations).frozen() {
		return 0
	}
	return settle + left
}

// holds reports whether the VM is locked by the snapshot, or half so.
func (view *View) holds() bool {
	return view.VM != nil && snapshots.Claimed(view.VM, view.Snapshot.Name)
}

// made reports whether all volumes are snapshotted. The guest writes again by then.
func (view *View) made() bool {
	return snapshots.Succeeded(view.Snapshot) || taken(view.Content) || complete(view.Content)
}

// complete reports whether a content, which may be nil, has thawed its guest since all volumes are snapshotted. Its
// status comes a moment later.
func complete(content *v1beta1.VirtualMachineSnapshotContent) bool {
	if content == nil {
		return false
	}
	record := recordOf(content.Annotations)
	return record != nil && record.Thawed && record.Complete
}

// taken reports whether all volumes of a content, which may be nil, are snapshotted.
func taken(content *v1beta1.VirtualMachineSnapshotContent) bool {
	return content != nil && content.Status != nil && content.Status.CreationTime != nil
}

// releasable reports whether the VM may be unlocked: the snapshot is made, or it will not be made any more and nothing
// is left that may still be about to thaw the guest.
func (view *View) releasable() bool {
	if view.made() {
		return true
	}
	over := !snapshots.Progressing(view.Snapshot) || snapshots.Terminating(view.Snapshot, view.Now)
	return over && (view.Content == nil || !snapshots.DeletesContent(view.Snapshot, view.Content))
}

// waits returns what the lock of the VM waits for, or "" for nothing.
func (view *View) waits() string {
	vm := view.VM
	var troubles []string
	for _, volume := range view.Volumes {
		if trouble := view.Troubles[volume.Claim]; volume.Claim != "" && trouble != "" {
			troubles = append(troubles, trouble+": "+volume.Claim)
		}
	}
	withData := func(v snapshots.Volume) bool { return v.Claim != "" }
	restore, restoring := snapshots.RestoreOf(vm)
	switch by, locked := snapshots.SnapshotOf(vm); {
	case vm.DeletionTimestamp != nil:
		return "source is being deleted"
	case locked && by != view.Snapshot.Name && !view.HolderGone:
		return fmt.Sprintf("snapshot %q in progress", by)
	case restoring:
		return fmt.Sprintf("restore %q in progress", restore)
	case volumemigration.Between(vm, view.VMI):
		return "the disks of source are being copied to other claims"
	case len(troubles) > 0:
		return fmt.Sprintf("source %s/%s %s", vm.Namespace, vm.Name, strings.Join(troubles, ", "))
	case !view.Served && slices.ContainsFunc(view.Volumes, withData):
		return noVolumeSnapshots
	case !view.Classed && slices.ContainsFunc(view.Volumes, withData):
		return noClass
	}
	switch guestOf(view.VMI) {
	case GuestChanging:
		return "source is starting or shutting down"
	case NoGuest:
		if view.Pods > 0 {
			return fmt.Sprintf("source is offline but %d pods using PVCs", view.Pods)
		}
	}
	return ""
}

// Trouble returns why a claim cannot be snapshotted yet, given the DataVolume of its name, nil when there is none; or
// "" when it can. claim is nil when it does not exist.
func Trouble(claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) string {
	switch {
	case claim == nil:
		return "volume doesnt exist"
	case claim.DeletionTimestamp != nil:
		return "volume is being deleted"
	case claim.Status.Phase != corev1.ClaimBound:
		return "volume not bound"
	case claims.StateOfClaim(claim, dv) != claims.Populated:
		return "volume not populated"
	}
	return ""
}
