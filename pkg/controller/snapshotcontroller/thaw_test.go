package snapshotcontroller

import (
	"context"
	"errors"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// A virt-handler that was just started finds no guest, although there is one, which is frozen.
func TestThawOfAGuestThatIsNotFound(t *testing.T) {
	resource := schema.GroupResource{Resource: "virtualmachineinstances"}
	for _, err := range []error{
		apierrors.NewNotFound(resource, "demo"), apierrors.NewConflict(resource, "demo", context.Canceled),
	} {
		for guest, again := range map[Guest]bool{
			NoGuest: false, GuestWaiting: false, GuestChanging: false, GuestRunning: true,
		} {
			step := ContentStep{Record: &FreezeRecord{Until: now.Add(time.Minute)}}
			view := viewOf(content(nil), guest)
			if got := step.thawed(&view, err, now); (got != nil) != again || step.Record.ThawedAt.IsZero() != again {
				t.Errorf("%v, guest %v: %v, %+v", err, guest, got, step.Record)
			}
		}
		for until, again := range map[time.Time]bool{now: true, now.Add(-snapshots.ControllerEarly): false} {
			step, view := ContentStep{Record: &FreezeRecord{Until: until}}, viewOf(content(nil), GuestRunning)
			if got := step.thawed(&view, err, now); (got != nil) != again {
				t.Errorf("until %s: %v; its launcher thaws it %s later", until, got, snapshots.ControllerEarly)
			}
		}
	}
}

// What a guest answers to a thaw, of a freeze that went well and of one after which no VolumeSnapshots were made.
func TestThawed(t *testing.T) {
	limited := errors.New("fsfreeze is limited to 10 seconds")
	for name, test := range map[string]struct {
		err              error
		failed           bool
		thawed, timedOut bool
		again            bool
	}{
		"well":                      {thawed: true},
		"too late":                  {err: limited, thawed: true, timedOut: true},
		"no answer":                 {err: errors.New("no answer"), thawed: true, again: true},
		"well, after a failure":     {failed: true, thawed: true},
		"too late, after a failure": {failed: true, err: limited, thawed: true},
		// It stays on record as frozen, and is thawed later.
		"no answer, after a failure": {failed: true, err: errors.New("no answer")},
	} {
		view := viewOf(content(recorded(FreezeRecord{Until: now.Add(time.Minute)})), GuestRunning,
			volumeSnapshot("a", true, true, ""), volumeSnapshot("b", true, true, ""))
		if test.failed {
			view.VolumeSnapshots = nil
		}
		step := NextContent(view)
		if test.failed {
			step.frozen(snapshots.QuiescedAgent)
			step.created(&view, errors.New("refused"))
		}
		err := step.thawed(&view, test.err, now)
		if (err != nil) != test.again || step.Record.Thawed != test.thawed || step.Record.TimedOut != test.timedOut {
			t.Errorf("%s: %v, %+v", name, err, step.Record)
		}
		if test.failed && (step.Record.Quiesced != snapshots.QuiescedAgent || step.Later || len(step.Create) > 0 ||
			step.RequeueAfter != retry) {
			t.Errorf("%s: %+v, %+v", name, step, step.Record)
		}
	}
}

// How a guest was quiesced is on its VolumeSnapshots while it is frozen, and in the content's record afterwards. The
// thaw is written once: what it answers is in the record, too.
func TestQuiescedOnVolumeSnapshots(t *testing.T) {
	view := viewOf(content(recorded(*newRecord(snapshotAged(time.Minute), "", now))), GuestRunning)
	step := NextContent(view)
	step.frozen(snapshots.QuiescedPaused)
	step.created(&view, nil)
	if annotations, err := step.annotations(view.Content); len(annotations) > 0 || err != nil || len(step.Events) > 0 {
		t.Errorf("written while the guest is frozen: %v, %v, %v", annotations, step.Events, err)
	}
	view.VolumeSnapshots = map[string]*snapshotv1.VolumeSnapshot{}
	for _, made := range step.Create {
		made.Status = volumeSnapshot("", true, false, "").Status
		view.VolumeSnapshots[made.Name] = made
	}
	next := NextContent(view)
	if !next.Thaw || next.Record.Quiesced != snapshots.QuiescedPaused || !next.Record.Complete ||
		count(next.Events, "SuccessfulVolumeSnapshotCreate") != 2 {
		t.Errorf("%+v, record %+v", next, next.Record)
	}
}
