package snapshotcontroller

import (
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Reasons of events; KubeVirt's.
const (
	ReasonVolumeSnapshotCreated = "SuccessfulVolumeSnapshotCreate"
	ReasonVolumeSnapshotMissing = "VolumeSnapshotMissing"
)

// noVolumeSnapshots is the message for a cluster without CSI's kinds.
const noVolumeSnapshots = "the cluster has no VolumeSnapshots (snapshot.storage.k8s.io); install the CSI snapshot " +
	"controller and its definitions"

// noClass is the message for a cluster in which nothing can be snapshotted yet: classes come after their kind, and a
// snapshot that began in between would leave out all volumes.
const noClass = "the cluster has no VolumeSnapshotClass; create one for the driver of the volumes' StorageClass"

// retry is the delay before what failed is tried again.
const retry = 5 * time.Second

// Guest is the state of the guest of a content's VM.
type Guest int

// The states of a guest.
const (
	// NoGuest is a VM that is off.
	NoGuest Guest = iota
	// GuestWaiting is a VMI that has no node yet.
	GuestWaiting
	// GuestChanging is a guest that starts or shuts down.
	GuestChanging
	// GuestRunning runs, or is paused.
	GuestRunning
)

// ContentView holds what a decision about a VirtualMachineSnapshotContent depends on.
type ContentView struct {
	Content *v1beta1.VirtualMachineSnapshotContent
	// Snapshot is the content's, nil when it is gone.
	Snapshot *v1beta1.VirtualMachineSnapshot
	Guest    Guest
	// GuestUID is the VMI's UID, empty when there is none.
	GuestUID types.UID
	// Served says that the cluster has VolumeSnapshots. VolumeSnapshots are the content's that exist, by name.
	Served          bool
	VolumeSnapshots map[string]*snapshotv1.VolumeSnapshot
	// Taken is when the driver has snapshotted the volume of a VolumeSnapshot, by name, as long as the VolumeSnapshot
	// itself does not say so.
	Taken   map[string]metav1.Time
	Classes snapshots.Classes
	// Memory is nil for a content that is to have no memory.
	Memory *MemoryView
	Now    time.Time
}

// ContentStep holds what to write, in the order of its fields.
type ContentStep struct {
	// CreateClaim is the claim for the guest's memory, VMI the VMI with its volume, or without it.
	CreateClaim *corev1.PersistentVolumeClaim
	VMI         *v1.VirtualMachineInstance
	// Rehearse says that the API server is asked whether it would take the VolumeSnapshots before anything is frozen.
	Rehearse bool
	// SaveMemory says that the guest's memory is saved before the VolumeSnapshots are made, instead of a Freeze by its
	// agent.
	SaveMemory bool
	// Freeze says that the guest is frozen, for as long as Record says, before the VolumeSnapshots are made.
	Freeze bool
	Create []*snapshotv1.VolumeSnapshot
	// Thaw says that the guest may write again.
	Thaw bool
	// Record is what to remember about the freeze; nil leaves it, and says with Thaw that the guest may not be frozen
	// at all. Memory is what to remember about the guest's memory; nil leaves it.
	Record *FreezeRecord
	Memory *savedmemory.Memory
	Events []Event
	// Status is the content's; nil leaves it. Later says that it is written after the thaw, by the next step: a write
	// would keep the frozen guest waiting, and what follows the thaw may by then be reported with it.
	Later           bool
	Status          *v1beta1.VirtualMachineSnapshotContentStatus
	RemoveFinalizer bool
	frame.Requeue

	// quiesced is the result of Freeze or SaveMemory, failure what kept the VolumeSnapshots from being made.
	quiesced snapshots.Quiesced
	failure  error
}

// Event is one about the content.
type Event struct{ Type, Reason, Message string }

// NextContent decides on a content.
func NextContent(view ContentView) ContentStep {
	content, snapshot := view.Content, view.Snapshot
	record := recordOf(content.Annotations)
	if content.DeletionTimestamp != nil || snapshot == nil || snapshots.Terminating(snapshot, view.Now) {
		var step ContentStep
		switch {
		case record.frozen():
			step.thaw(&view, record)
		case record == nil && content.Status == nil && view.Guest == GuestRunning:
			step.Thaw = true // its virt-controller may have ended in the moment of a freeze
		}
		step.VMI = view.Memory.unplug(memoryVolume(content))
		// One that is deleted before its snapshot waits for that.
		step.RemoveFinalizer = snapshot == nil || snapshots.Terminating(snapshot, view.Now)
		return step
	}
	status := &v1beta1.VirtualMachineSnapshotContentStatus{}
	if content.Status != nil {
		status = content.Status.DeepCopy()
	}
	step := ContentStep{Status: status}
	missing := view.missing()
	status.VolumeSnapshotStatus = view.statuses()
	if len(missing) > 0 && status.CreationTime == nil {
		view.begin(&step, record, missing)
		return step
	}
	view.follow(&step, record, missing)
	if record != nil && record.Thawed {
		step.VMI = view.Memory.unplug(memoryVolume(content))
	}
	return step
}

// thaw has the guest write again. The events of the VolumeSnapshots have waited for that.
func (s *ContentStep) thaw(view *ContentView, record *FreezeRecord) *FreezeRecord {
	made := view.made()
	s.Thaw, s.Record = true, record.thawed(made)
	for _, snapshot := range made {
		s.Events = append(s.Events, madeEvent(snapshot))
	}
	return s.Record
}

// missing returns the backups whose VolumeSnapshot does not exist.
func (view *ContentView) missing() []v1beta1.VolumeBackup {
	var out []v1beta1.VolumeBackup
	for _, backup := range view.Content.Spec.VolumeBackups {
		if name := backup.VolumeSnapshotName; name != nil && view.VolumeSnapshots[*name] == nil {
			out = append(out, backup)
		}
	}
	return out
}

// begin has the VolumeSnapshots made that are missing, all at once, while the guest does not write.
func (view *ContentView) begin(step *ContentStep, record *FreezeRecord, missing []v1beta1.VolumeBackup) {
	failed := view.Content.Status != nil && view.Content.Status.Error != nil
	step.Status.ReadyToUse = new(false)
	if !view.Served {
		// Its coming is an event.
		view.fail(step.Status, noVolumeSnapshots)
		return
	}
	for i := range missing {
		snapshot, trouble := view.volumeSnapshot(&missing[i])
		if trouble != "" {
			view.fail(step.Status, trouble)
			step.Create, step.RequeueAfter = nil, retry
			return
		}
		step.Create = append(step.Create, snapshot)
	}
	if view.Memory != nil {
		if step.SaveMemory = view.prepareMemory(step); !step.SaveMemory {
			step.Create = nil
			return
		}
	}
	switch view.Guest {
	case NoGuest:
		view.wait(step)
	case GuestChanging:
		step.Create, step.RequeueAfter = nil, retry
	case GuestWaiting:
		step.Record = &FreezeRecord{
			Until: view.Now.UTC().Truncate(time.Second), Quiesced: snapshots.QuiescedNot, Thawed: true,
		}
	case GuestRunning:
		step.Freeze, step.Later = true, true
		// After an error a guest is not frozen again and again for what is refused, by a quota for example.
		step.Rehearse = failed && !record.frozen()
		step.Record = newRecord(view.Snapshot, view.GuestUID, view.Now)
		if some := len(view.VolumeSnapshots) > 0; !some && record.fresh(step.Record) {
			step.Record = record
		} else {
			step.Record.TimedOut = some && (record == nil || record.Thawed || record.TimedOut ||
				view.Now.After(record.Until) || view.another(record))
		}
		if step.SaveMemory && record.frozen() {
			step.Record.Quiesced = record.Quiesced // a look at a save that has begun
		}
		step.RequeueAfter = max(step.Record.Until.Sub(view.Now), time.Second)
	}
}

// follow waits for the VolumeSnapshots, and lets the guest write again as soon as all are taken or have failed.
func (view *ContentView) follow(step *ContentStep, record *FreezeRecord, missing []v1beta1.VolumeBackup) {
	taken, settled, ready, trouble := true, true, true, ""
	for _, s := range step.Status.VolumeSnapshotStatus {
		failed := s.Error != nil && s.Error.Message != nil
		taken = taken && s.CreationTime != nil
		settled = settled && (s.CreationTime != nil || failed)
		ready = ready && s.ReadyToUse != nil && *s.ReadyToUse
		if failed && trouble == "" {
			trouble = fmt.Sprintf("VolumeSnapshot %s error: %s", s.VolumeSnapshotName, *s.Error.Message)
		}
	}
	if len(missing) > 0 {
		taken, ready = false, false
		trouble = view.lost(step, missing)
	}
	if record.frozen() {
		step.Later = trouble == ""
		if late := !view.Now.Before(record.Until); settled || late {
			thawed := step.thaw(view, record)
			thawed.Complete, thawed.TimedOut = taken, record.TimedOut || !taken || late || view.another(record)
		} else {
			step.RequeueAfter = record.Until.Sub(view.Now)
		}
	}
	if record == nil && trouble == "" && !ready {
		view.wait(step)
	}
	if taken && step.Status.CreationTime == nil {
		step.Status.CreationTime = new(metav1.NewTime(view.Now).Rfc3339Copy())
		if left := view.soon(record, step.Status); !ready && trouble == "" && left > step.RequeueAfter {
			step.Later, step.RequeueAfter = true, left
		}
	}
	step.Status.ReadyToUse = &ready
	switch {
	case trouble == "":
		step.Status.Error = nil
	case !ready:
		view.fail(step.Status, trouble)
	}
}

// lost reports that VolumeSnapshots are gone, by events when that is new.
func (view *ContentView) lost(step *ContentStep, missing []v1beta1.VolumeBackup) (trouble string) {
	names := make([]string, len(missing))
	for i, backup := range missing {
		names[i] = *backup.VolumeSnapshotName
	}
	trouble = fmt.Sprintf("VolumeSnapshots (%s) missing", strings.Join(names, ","))
	if sameError(view.Content.Status, trouble) {
		return trouble
	}
	for _, name := range names {
		step.Events = append(step.Events, Event{
			corev1.EventTypeWarning, ReasonVolumeSnapshotMissing,
			fmt.Sprintf("VolumeSnapshot %s no longer exists", name),
		})
	}
	return trouble
}

// brief is the time that the volumes of a VM that is off may take before the status reports on them: a write for each
// step of each volume would keep them waiting. Creation times are whole seconds.
const brief = 2 * time.Second

// wait leaves the status for later as long as the content is young.
func (view *ContentView) wait(step *ContentStep) {
	if left := view.Content.CreationTimestamp.Add(brief).Sub(view.Now); left > 0 && left <= brief {
		step.Later, step.RequeueAfter = true, left
	}
}

// readySoon is the time after the guest was thawed, or the last volume of a guest that was not frozen was taken, for
// which the status does not report that all are taken: most drivers have them ready by then, and one write says both.
const readySoon = 100 * time.Millisecond

// soon returns what is left of readySoon; nothing, too, when the clock of a driver goes before ours. A VolumeSnapshot
// says in whole seconds when it was taken.
func (view *ContentView) soon(
	record *FreezeRecord, status *v1beta1.VirtualMachineSnapshotContentStatus,
) time.Duration {
	var last time.Time
	for _, s := range status.VolumeSnapshotStatus {
		if s.CreationTime.After(last) {
			last = s.CreationTime.Time
		}
	}
	if record != nil && record.ThawedAt.After(last) {
		last = record.ThawedAt
	}
	if left := last.Add(readySoon).Sub(view.Now); left <= readySoon {
		return left
	}
	return 0
}

// another reports that another guest runs than the one that was frozen.
func (view *ContentView) another(record *FreezeRecord) bool {
	return record.Guest != "" && view.GuestUID != "" && record.Guest != view.GuestUID
}

// fail puts an error into the status, unless it is there.
func (view *ContentView) fail(status *v1beta1.VirtualMachineSnapshotContentStatus, message string) {
	if !sameError(status, message) {
		status.Error = newError(view.Now, message)
	}
}

func newError(now time.Time, message string) *v1beta1.Error {
	return &v1beta1.Error{Time: new(metav1.NewTime(now).Rfc3339Copy()), Message: &message}
}

func sameError(status *v1beta1.VirtualMachineSnapshotContentStatus, message string) bool {
	return status != nil && status.Error != nil && status.Error.Message != nil && *status.Error.Message == message
}
