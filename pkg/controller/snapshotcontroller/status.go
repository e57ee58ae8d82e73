package snapshotcontroller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// status returns what the snapshot's status should be. locked says that its VM is, waits what the lock waits for.
// KubeVirt's texts are in the reasons of conditions.
func status(view View, locked bool, waits string) *v1beta1.VirtualMachineSnapshotStatus {
	snapshot := view.Snapshot.DeepCopy()
	if snapshot.Status == nil {
		snapshot.Status = &v1beta1.VirtualMachineSnapshotStatus{ReadyToUse: new(false)}
	}
	next, content := snapshot.Status, view.Content
	if view.VM != nil {
		next.SourceUID = &view.VM.UID
	}
	switch {
	case content != nil && content.Status != nil:
		next.VirtualMachineSnapshotContentName = &content.Name
		next.CreationTime, next.ReadyToUse = content.Status.CreationTime, content.Status.ReadyToUse
		next.Error = content.Status.Error
	case content == nil && snapshots.Succeeded(snapshot) && snapshot.DeletionTimestamp == nil:
		next.ReadyToUse = new(false)
		message := "VirtualMachineSnapshotContent " + snapshots.ContentName(snapshot) + " is gone"
		if old := next.Error; old == nil || old.Message == nil || *old.Message != message {
			next.Error = newError(view.Now, message)
		}
	}
	if content != nil && next.SnapshotVolumes == nil && view.Volumes != nil {
		listVolumes(view, next)
	}
	indicate(view, next)
	progress(view, snapshot, locked, waits)

	ready := v1beta1.Condition{Type: v1beta1.ConditionReady, Status: corev1.ConditionFalse, Reason: "Not ready"}
	if snapshots.Ready(snapshot) {
		ready.Status, ready.Reason = corev1.ConditionTrue, "Ready"
	}
	conditions.Set(&next.Conditions, ready, view.Now)
	return next
}

// KubeVirt's texts, which its clients may look for.
const (
	deadlineExceeded = "snapshot deadline exceeded"
	notLocked        = "Source not locked"
)

// progress sets the phase and the conditions Progressing and Failure.
func progress(view View, snapshot *v1beta1.VirtualMachineSnapshot, locked bool, waits string) {
	next := snapshot.Status
	set := func(kind v1beta1.ConditionType, status corev1.ConditionStatus, reason string) {
		condition := v1beta1.Condition{Type: kind, Status: status, Reason: reason}
		if old := conditions.Find(next.Conditions, kind); old != nil {
			condition.Message = old.Message
		}
		conditions.Set(&next.Conditions, condition, view.Now)
	}
	const progressing = v1beta1.ConditionProgressing
	exceeded := snapshots.Exceeded(snapshot, view.Now)
	switch {
	case exceeded && snapshots.Progressing(snapshot) && locked && !complete(view.Content):
		// The VM is released first.
		next.Phase = v1beta1.InProgress
		set(progressing, corev1.ConditionFalse, "Operation failed")
	case exceeded:
		next.Phase = v1beta1.Failed
		waited := conditions.With(next.Conditions, progressing, corev1.ConditionFalse)
		set(v1beta1.ConditionFailure, corev1.ConditionTrue, deadlineExceeded)
		if waited != nil && strings.HasPrefix(waited.Reason, notLocked) {
			conditions.Find(next.Conditions, v1beta1.ConditionFailure).Message = deadlineExceeded + ": " + waited.Reason
		}
		set(progressing, corev1.ConditionFalse, "Operation failed")
	case snapshots.Succeeded(snapshot) || next.CreationTime != nil:
		next.Phase = v1beta1.Succeeded
		set(progressing, corev1.ConditionFalse, "Operation complete")
	default:
		next.Phase = v1beta1.InProgress
		switch {
		case view.VM == nil:
			set(progressing, corev1.ConditionFalse, "Source does not exist")
		case locked:
			set(progressing, corev1.ConditionTrue, "Source locked and operation in progress")
		case snapshots.MemoryReason(waits):
			set(progressing, corev1.ConditionFalse, notLocked+": "+waits)
		case waits != "":
			set(progressing, corev1.ConditionFalse, notLocked+" "+waits)
		default:
			set(progressing, corev1.ConditionFalse, notLocked)
		}
		if snapshot.DeletionTimestamp != nil {
			next.Phase = v1beta1.Deleting
			set(progressing, corev1.ConditionFalse, "VM snapshot is deleting")
		}
	}
	if next.Error != nil && next.Phase != v1beta1.Failed {
		set(progressing, corev1.ConditionFalse, "In error state")
	}
}

// listVolumes writes which volumes the snapshot has and has not, and why.
func listVolumes(view View, next *v1beta1.VirtualMachineSnapshotStatus) {
	included, excluded := snapshots.Split(view.Volumes, view.Content)
	lists := &v1beta1.SnapshotVolumesLists{IncludedVolumes: included}
	var withData []snapshots.Volume
	for _, volume := range excluded {
		lists.ExcludedVolumes = append(lists.ExcludedVolumes, volume.Name)
		if volume.Claim != "" {
			withData = append(withData, volume)
		}
	}
	next.SnapshotVolumes = lists
	if len(excluded) > 0 {
		conditions.Set(&next.Conditions, v1beta1.Condition{
			Type: v1beta1.ConditionProgressing, Status: corev1.ConditionTrue,
			Message: "left out: " + snapshots.Reasons(excluded),
		}, view.Now)
	}
	if len(withData) > 0 {
		partial := []v1beta1.Indication{snapshots.PartialSnapshot}
		next.Indications = partial //nolint:staticcheck // KubeVirt fills it in, too
		next.SourceIndications = snapshots.Describe(partial, withData)
	}
}

// indicate writes how the guest was quiesced, as long as the snapshot is not over.
func indicate(view View, next *v1beta1.VirtualMachineSnapshotStatus) {
	if next.Phase == v1beta1.Succeeded || next.Phase == v1beta1.Failed {
		return
	}
	exceeded := view.Snapshot != nil && snapshots.Exceeded(view.Snapshot, view.Now)
	if exceeded && view.Content == nil {
		return // It was written when there was a content.
	}
	if view.Content != nil && !exceeded && !taken(view.Content) {
		if record := recordOf(view.Content.Annotations); record != nil && (!record.Thawed || record.Complete) {
			return // The guest is frozen: a write now would delay those that it waits for.
		}
	}
	list, memory := quiesced(view), describeMemory(view.Content)
	if memory != nil {
		list = slices.DeleteFunc(list, lacksMemory)
	}
	described := snapshots.Describe(list, nil)
	for _, old := range next.SourceIndications {
		if old.Indication == snapshots.PartialSnapshot {
			list, described = append(list, old.Indication), append(described, old)
		}
	}
	if memory != nil {
		list, described = append(list, memory.Indication), append(described, *memory)
	}
	slices.Sort(list)
	slices.SortFunc(described, func(a, b v1beta1.SourceIndication) int {
		if a.Indication < b.Indication {
			return -1
		}
		return 1
	})
	next.Indications, next.SourceIndications = list, described //nolint:staticcheck // as above
}

// quiesced returns the indications of how the guest was quiesced; none before that has happened.
func quiesced(view View) []v1beta1.Indication {
	if view.Content == nil {
		return nil
	}
	if record := recordOf(view.Content.Annotations); record != nil && record.Quiesced != "" {
		return snapshots.Indications(record.Quiesced, record.TimedOut)
	}
	if status := view.Content.Status; status != nil && status.CreationTime != nil && guestOf(view.VMI) != NoGuest {
		// There was no volume to freeze the guest for.
		return []v1beta1.Indication{v1beta1.VMSnapshotOnlineSnapshotIndication}
	}
	return nil
}
