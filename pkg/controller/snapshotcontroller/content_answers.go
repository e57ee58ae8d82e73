package snapshotcontroller

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// The functions of this file change the rest of a ContentStep by what the guest and the API server answer.

// fail has the step say why there are no VolumeSnapshots, and tried again.
func (s *ContentStep) fail(view *ContentView, err error) {
	s.Create, s.failure = nil, err
	view.fail(s.Status, err.Error())
	s.Later, s.RequeueAfter = false, retry
}

// rehearsalFailed takes the answer to VolumeSnapshots that the API server would refuse: no guest is frozen for them.
func (s *ContentStep) rehearsalFailed(view *ContentView, err error) {
	s.SaveMemory, s.Freeze, s.Record = false, false, nil
	s.fail(view, err)
}

// frozen takes the answer to a freeze. The VolumeSnapshots record it until the guest is thawed.
func (s *ContentStep) frozen(how snapshots.Quiesced) {
	s.quiesced = how
	for _, snapshot := range s.Create {
		metav1.SetMetaDataAnnotation(&snapshot.ObjectMeta, QuiescedAnnotation, string(how))
	}
}

// freezeFailed takes an error of a freeze, after which the guest may be frozen all the same, or in part.
func (s *ContentStep) freezeFailed(view *ContentView, err error) {
	s.Thaw = true
	s.fail(view, err)
}

// memorySaved takes the progress of the save of the guest's memory; the guest is paused. The VolumeSnapshots are made
// once it is done. An error means that the save failed.
func (s *ContentStep) memorySaved(view *ContentView, saved savedmemory.Saved) error {
	s.quiesced, s.Record.Quiesced = snapshots.QuiescedPaused, snapshots.QuiescedPaused
	if saved.Ended == nil {
		s.Create, s.RequeueAfter = nil, saveLook
		return nil
	}
	before := savedmemory.MemoryOf(view.Content.Annotations)
	if len(view.VolumeSnapshots) > 0 && before != nil && !before.Began.Equal(saved.Began) {
		s.Record.TimedOut = true // it went on meanwhile: some volumes are of another moment
	}
	s.Memory = &savedmemory.Memory{
		Claim: memoryVolume(view.Content), Saved: saved, Guest: view.Memory.VMI.UID, MACs: view.Memory.macs(),
	}
	if saved.Failure != "" {
		return fmt.Errorf("the guest's memory cannot be saved: %s", saved.Failure)
	}
	if before == nil {
		s.Events = append(s.Events, Event{
			corev1.EventTypeNormal, reasonMemorySaved,
			fmt.Sprintf("Saved the guest's memory, %d bytes, in claim %s", saved.Size, s.Memory.Claim),
		})
	}
	return nil
}

// saveUnanswered takes an error that leaves open whether the guest's memory is being saved. The guest is not thawed for
// it: a thaw cancels the save, and would come too late for a guest that does not answer. The next look asks again, and
// until one is answered the launcher's own time bounds how long the guest is paused.
func (s *ContentStep) saveUnanswered(view *ContentView, err error) {
	s.Freeze = false
	s.fail(view, err)
	s.RequeueAfter = saveLook
}

// created takes the answer to the creation of the VolumeSnapshots. While a guest is frozen for them their events wait.
func (s *ContentStep) created(view *ContentView, err error) {
	if !s.Freeze {
		for _, snapshot := range s.Create {
			if snapshot.UID != "" {
				s.Events = append(s.Events, madeEvent(snapshot))
			}
		}
	}
	switch {
	case err == nil:
	case s.Freeze:
		s.freezeFailed(view, err)
	default:
		s.fail(view, err)
	}
}

// thawed takes the answer to a thaw, and returns the error of one that is to be tried again. That no guest is found
// means that there is none only when the VMI says so, too: a virt-handler that has just been started does not know its
// guests yet. Once its time is over the guest's launcher has thawed it.
func (s *ContentStep) thawed(view *ContentView, err error, now time.Time) error {
	if view.Guest != GuestRunning && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) {
		err = nil
	}
	switch record := s.Record; {
	case s.Freeze: // of a freeze that came to nothing; what cannot be thawed stays so on record, and is thawed later
		record.Quiesced = s.quiesced
		if record.Thawed = err == nil || timedOut(err); !record.Thawed {
			s.fail(view, errors.Join(s.failure, err))
		}
		return nil
	case record == nil:
	case timedOut(err):
		record.TimedOut, record.ThawedAt = true, now
	case err != nil && !record.over(view.Now):
		return err
	default:
		record.ThawedAt = now
	}
	if memory := savedmemory.MemoryOf(view.Content.Annotations); memory != nil && memory.Stood.Duration == 0 {
		memory.Stood.Duration = max(now.Sub(memory.Began), time.Millisecond)
		s.Memory = memory
	}
	return nil
}
