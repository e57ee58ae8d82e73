package snapshotcontroller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/frame"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Reasons of events; KubeVirt's.
const (
	ReasonVolumeSnapshotCreated = "SuccessfulVolumeSnapshotCreate"
	ReasonVolumeSnapshotMissing = "VolumeSnapshotMissing"
)

// noVolumeSnapshots is what is said of a cluster without CSI's kinds.
const noVolumeSnapshots = "the cluster has no VolumeSnapshots (snapshot.storage.k8s.io); install the CSI snapshot " +
	"controller and its definitions"

// retry is when to try again what did not work.
const retry = 5 * time.Second

// Guest is the state of the guest of a content's VM.
type Guest int

// The states of a guest.
const (
	// NoGuest is a VM that is off.
	NoGuest Guest = iota
	// GuestWaiting is an instance that has no node yet.
	GuestWaiting
	// GuestChanging is a guest that starts or shuts down.
	GuestChanging
	// GuestRunning runs, or is paused.
	GuestRunning
)

// ContentView holds what a decision depends on for a VirtualMachineSnapshotContent.
type ContentView struct {
	Content *v1beta1.VirtualMachineSnapshotContent
	// Snapshot is the content's, nil when it is gone.
	Snapshot *v1beta1.VirtualMachineSnapshot
	Guest    Guest
	// GuestUID is the VMI's, empty when there is none.
	GuestUID types.UID
	// Served says that the cluster has VolumeSnapshots. VolumeSnapshots are those of the content that exist, by name.
	Served          bool
	VolumeSnapshots map[string]*snapshotv1.VolumeSnapshot
	// Cut is when the driver has cut a VolumeSnapshot, by name, as long as that does not say so itself.
	Cut     map[string]metav1.Time
	Classes snapshots.Classes
	// Memory is nil for a content that is to have no memory.
	Memory *MemoryView
	Now    time.Time
}

// ContentStep says what to write, in the order of its fields.
type ContentStep struct {
	// CreateClaim is the claim for the guest's memory; Plug and Unplug are of its volume.
	CreateClaim  *corev1.PersistentVolumeClaim
	Plug, Unplug bool
	// SaveMemory says that the guest's memory is saved before the VolumeSnapshots are made, instead of a Freeze by its
	// agent.
	SaveMemory bool
	// Freeze says that the guest is frozen, for as long as Window says, before the VolumeSnapshots are made.
	Freeze bool
	Create []*snapshotv1.VolumeSnapshot
	// Thaw says that the guest may write again.
	Thaw bool
	// Window is what is to be remembered of the freeze; nil leaves it, and says with Thaw that the guest may not be
	// frozen at all.
	Window *Window
	// Missing are VolumeSnapshots that are gone, for an event.
	Missing []string
	// Status is the content's; nil leaves it. Later says that it is written after the thaw, by the next step: a write
	// would keep the frozen guest waiting, and what follows the thaw may by then be reported with it.
	Later           bool
	Status          *v1beta1.VirtualMachineSnapshotContentStatus
	RemoveFinalizer bool
	frame.Requeue
}

// NextContent decides on a content.
func NextContent(view ContentView) ContentStep {
	content, snapshot := view.Content, view.Snapshot
	window := windowOf(content.Annotations)
	if content.DeletionTimestamp != nil || snapshot == nil || snapshots.Terminating(snapshot, view.Now) {
		var step ContentStep
		switch {
		case window != nil && !window.Closed:
			step.close(window)
		case window == nil && content.Status == nil && view.Guest == GuestRunning:
			step.Thaw = true // its virt-controller may have ended in the moment of a freeze
		}
		step.Unplug = view.Memory.plugged(memoryVolume(content))
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
		view.begin(&step, window, missing)
		return step
	}
	view.follow(&step, window, missing)
	step.Unplug = window != nil && window.Closed && view.Memory.plugged(memoryVolume(content))
	return step
}

// close has the guest write again.
func (s *ContentStep) close(window *Window) *Window {
	closed := *window
	closed.Closed = true
	s.Thaw, s.Window = true, &closed
	return &closed
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

// statuses returns the status of each VolumeSnapshot that exists.
func (view *ContentView) statuses() []v1beta1.VolumeSnapshotStatus {
	var out []v1beta1.VolumeSnapshotStatus
	for _, backup := range view.Content.Spec.VolumeBackups {
		if backup.VolumeSnapshotName == nil || view.VolumeSnapshots[*backup.VolumeSnapshotName] == nil {
			continue
		}
		status := statusOf(view.VolumeSnapshots[*backup.VolumeSnapshotName])
		if cut, ok := view.Cut[status.VolumeSnapshotName]; ok && status.CreationTime == nil {
			status.CreationTime = &cut
		}
		out = append(out, status)
	}
	return out
}

func statusOf(snapshot *snapshotv1.VolumeSnapshot) v1beta1.VolumeSnapshotStatus {
	out := v1beta1.VolumeSnapshotStatus{VolumeSnapshotName: snapshot.Name}
	if status := snapshot.Status; status != nil {
		out.ReadyToUse, out.CreationTime = status.ReadyToUse, status.CreationTime
		if status.Error != nil {
			out.Error = &v1beta1.Error{Time: status.Error.Time, Message: status.Error.Message}
		}
	}
	return out
}

// begin has the VolumeSnapshots made that are missing, all at once, while the guest does not write.
func (view *ContentView) begin(step *ContentStep, window *Window, missing []v1beta1.VolumeBackup) {
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
		step.Window = &Window{
			Until: view.Now.UTC().Truncate(time.Second), Quiesced: snapshots.QuiescedNot, Closed: true,
		}
	case GuestRunning:
		step.Freeze, step.Later = true, true
		step.Window = newWindow(view.Snapshot, view.GuestUID, view.Now)
		if some := len(view.VolumeSnapshots) > 0; !some && window.fresh(step.Window) {
			step.Window = window
		} else {
			step.Window.Lapsed = some && (window == nil || window.Closed || window.Lapsed ||
				view.Now.After(window.Until) || view.another(window))
		}
		step.RequeueAfter = max(step.Window.Until.Sub(view.Now), time.Second)
	}
}

// follow waits for the VolumeSnapshots, and lets the guest write again as soon as all are cut or have failed.
func (view *ContentView) follow(step *ContentStep, window *Window, missing []v1beta1.VolumeBackup) {
	cut, settled, ready, trouble := true, true, true, ""
	for _, s := range step.Status.VolumeSnapshotStatus {
		failed := s.Error != nil && s.Error.Message != nil
		cut = cut && s.CreationTime != nil
		settled = settled && (s.CreationTime != nil || failed)
		ready = ready && s.ReadyToUse != nil && *s.ReadyToUse
		if failed && trouble == "" {
			trouble = fmt.Sprintf("VolumeSnapshot %s error: %s", s.VolumeSnapshotName, *s.Error.Message)
		}
	}
	if len(missing) > 0 {
		for _, backup := range missing {
			step.Missing = append(step.Missing, *backup.VolumeSnapshotName)
		}
		cut, ready = false, false
		trouble = fmt.Sprintf("VolumeSnapshots (%s) missing", strings.Join(step.Missing, ","))
	}
	if window != nil && !window.Closed {
		step.Later = trouble == ""
		if late := !view.Now.Before(window.Until); settled || late {
			closed := step.close(window)
			closed.Cut, closed.Lapsed = cut, window.Lapsed || !cut || late || view.another(window)
		} else {
			step.RequeueAfter = window.Until.Sub(view.Now)
		}
	}
	if window == nil && trouble == "" && !ready {
		view.wait(step)
	}
	if cut && step.Status.CreationTime == nil {
		step.Status.CreationTime = new(metav1.NewTime(view.Now).Rfc3339Copy())
		if left := view.soon(step.Status); !ready && trouble == "" && left > step.RequeueAfter {
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
	step.Missing = slices.DeleteFunc(step.Missing, func(string) bool { return sameError(view.Content.Status, trouble) })
}

// brief is how long the volumes of a VM that is off may take before anything is said of them: a write for each step of
// each volume would keep them waiting. Creation times are whole seconds.
const brief = 2 * time.Second

// wait leaves the status for later as long as the content is young.
func (view *ContentView) wait(step *ContentStep) {
	if left := view.Content.CreationTimestamp.Add(brief).Sub(view.Now); left > 0 && left <= brief {
		step.Later, step.RequeueAfter = true, left
	}
}

// readySoon is how long after the last volume was cut it is not said that all are: most drivers have them ready by
// then, and one write says both.
const readySoon = 100 * time.Millisecond

// soon returns what is left of readySoon; nothing, too, when the clock of a driver goes before ours.
func (view *ContentView) soon(status *v1beta1.VirtualMachineSnapshotContentStatus) time.Duration {
	var last time.Time
	for _, s := range status.VolumeSnapshotStatus {
		if s.CreationTime.After(last) {
			last = s.CreationTime.Time
		}
	}
	if left := last.Add(readySoon).Sub(view.Now); left <= readySoon {
		return left
	}
	return 0
}

// another reports that another guest runs than the one that was frozen.
func (view *ContentView) another(window *Window) bool {
	return window.Guest != "" && view.GuestUID != "" && window.Guest != view.GuestUID
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

// volumeSnapshot returns the VolumeSnapshot of a backup, or why it cannot be made.
func (view *ContentView) volumeSnapshot(backup *v1beta1.VolumeBackup) (*snapshotv1.VolumeSnapshot, string) {
	claim := &backup.PersistentVolumeClaim
	storage := ""
	if claim.Spec.StorageClassName != nil {
		storage = *claim.Spec.StorageClassName
	}
	class, trouble := view.Classes.Of(storage)
	if class == "" {
		if trouble == "" {
			trouble = fmt.Sprintf("No VolumeSnapshotClass: Volume snapshots are not configured for this "+
				"StorageClass [%s] [%s]", storage, backup.VolumeName)
		}
		return nil, trouble
	}
	vm := view.Content.Spec.Source.VirtualMachine
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: view.Content.Namespace, Name: *backup.VolumeSnapshotName,
			Labels: map[string]string{
				snapshots.LabelSourceName:      names.Shorten(vm.Name, names.MaxLabel),
				snapshots.LabelSourceNamespace: view.Content.Namespace,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(view.Content, ContentKind)},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim.Name},
			VolumeSnapshotClassName: &class,
		},
	}, ""
}

// ContentKind is the kind that owns VolumeSnapshots.
var ContentKind = v1beta1.SchemeGroupVersion.WithKind("VirtualMachineSnapshotContent")

// eventNormal is the type of an event that is no trouble.
const eventNormal = corev1.EventTypeNormal
