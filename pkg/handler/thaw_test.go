package handler

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

// thaw is a request to undo the freeze with that due.
type thaw struct{ at, due time.Duration }

// Unfreeze keeps to the contract, as a launcher does that has no timer of its own.
func (l *fakeLauncher) Unfreeze(
	_ context.Context, r *launcherpb.UnfreezeRequest,
) (*launcherpb.UnfreezeResponse, error) {
	l.mu.Lock()
	l.thaws = append(l.thaws, thaw{boottime.Now(), r.Due.AsDuration()})
	var err error
	if len(l.thawErrs) > 0 {
		err, l.thawErrs = l.thawErrs[0], l.thawErrs[1:]
	}
	due := l.state.GetFreeze().GetDue()
	l.mu.Unlock()
	if err == nil && (r.Due == nil || r.Due.AsDuration() == due.AsDuration()) {
		l.set(func(s *launcherpb.GuestState) { s.Freeze = nil })
	}
	return &launcherpb.UnfreezeResponse{}, err
}

// freeze has the guest be frozen from now on for a time at most.
func (l *fakeLauncher) freeze(most time.Duration) (due time.Duration) {
	began := boottime.Now()
	l.set(func(s *launcherpb.GuestState) {
		s.Freeze = &launcherpb.Freeze{Began: durationpb.New(began), Due: durationpb.New(began + most)}
	})
	return began + most
}

func (l *fakeLauncher) thawed() (is bool, asked []thaw) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Freeze == nil, append([]thaw(nil), l.thaws...)
}

// frozenWorld has a guest that runs, with a virt-handler.
func frozenWorld(t *testing.T) (w *world, h *running) {
	t.Helper()
	w = newWorld(t)
	w.startLauncher()
	h = w.startHandler()
	w.eventuallyPhase(v1.Running)
	return w, h
}

// eventuallyThawed waits until the guest is thawed, and returns when the freeze with that due was asked to be undone:
// more than once, if virt-handler has not soon heard that it was.
func (w *world) eventuallyThawed(due time.Duration) (asked []time.Duration) {
	w.t.Helper()
	w.eventually("the guest is thawed", func() bool { is, _ := w.launcher.thawed(); return is })
	_, all := w.launcher.thawed()
	for _, one := range all {
		if one.due == due {
			asked = append(asked, one.at)
		}
	}
	if len(asked) == 0 {
		w.t.Fatalf("nobody has asked to undo the freeze of %v, but: %v", due, all)
	}
	return asked
}

// A guest that nobody has thawed in time is thawed by virt-handler, before its launcher would do it.
func TestThawsInTime(t *testing.T) {
	w, _ := frozenWorld(t)
	for range 2 {
		most := 2 * time.Second
		due := w.launcher.freeze(most)
		if asked := w.eventuallyThawed(due); asked[0] < due-most/20 {
			t.Errorf("asked at %v, which is to be just before %v", asked, due)
		}
	}
	const began, due = time.Hour, 2 * time.Hour
	freeze := &launcherpb.Freeze{Began: durationpb.New(began), Due: durationpb.New(due)}
	if at := thawAt(freeze); at < due-time.Second || at >= due {
		t.Errorf("it asks at %v, which is to be just before %v", at, due)
	}
}

// The virt-handler of now learns of the freeze from the launcher.
func TestThawsAfterARestart(t *testing.T) {
	w, h := frozenWorld(t)
	w.launcher.freeze(time.Hour)
	h.stop()
	if is, asked := w.launcher.thawed(); is || len(asked) > 0 {
		t.Fatalf("it was thawed at once: %v", asked)
	}
	for _, most := range []time.Duration{time.Second, time.Millisecond} { // which is over when virt-handler comes back
		due := w.launcher.freeze(most)
		h = w.startHandler()
		if asked := w.eventuallyThawed(due); asked[0] < due-most/20 {
			t.Errorf("asked at %v; it was due at %v", asked, due)
		}
		h.stop()
	}
}

// A freeze that is renewed has its new time, and one that was undone or has no time is left alone.
func TestThawsNoOtherFreeze(t *testing.T) {
	w, _ := frozenWorld(t)
	w.launcher.freeze(300 * time.Millisecond)
	due := w.launcher.freeze(time.Second)
	if asked := w.eventuallyThawed(due); asked[0] < due-50*time.Millisecond {
		t.Errorf("asked at %v; it was due at %v", asked, due)
	}
	undone := w.launcher.freeze(500 * time.Millisecond)
	for _, change := range []func(*launcherpb.GuestState){
		func(s *launcherpb.GuestState) { s.Freeze = nil },
		func(s *launcherpb.GuestState) { s.Freeze = &launcherpb.Freeze{} },
		func(s *launcherpb.GuestState) { s.Freeze, s.FsfreezeStatus = nil, "frozen" }, // by hand, or for ever
	} {
		w.launcher.set(change)
	}
	w.eventually("the last is known", func() bool { return w.vmi().Status.FSFreezeStatus == "frozen" })
	known := boottime.Now()
	due = w.launcher.freeze(700 * time.Millisecond)
	if asked := w.eventuallyThawed(due); asked[0] < due-50*time.Millisecond {
		t.Errorf("asked at %v; it was due at %v", asked, due)
	}
	_, all := w.launcher.thawed()
	for _, one := range all {
		// On a slow machine its time may come before virt-handler knows that it is undone.
		if one.due == 0 || one.due == undone && known < undone-100*time.Millisecond {
			t.Errorf("asked at %v for %v, of which it was known at %v that it is undone", one.at, one.due, known)
		}
	}
}

// A launcher that fails is asked again, and again, but not all the time.
func TestThawsAgainAfterAFailure(t *testing.T) {
	w, _ := frozenWorld(t)
	w.launcher.mu.Lock()
	w.launcher.thawErrs = []error{
		status.Error(codes.Unavailable, "libvirtd is away"), status.Error(codes.Internal, "the agent hangs"),
	}
	w.launcher.mu.Unlock()
	asked := w.eventuallyThawed(w.launcher.freeze(time.Millisecond))
	if len(asked) < 3 || asked[1]-asked[0] < retryFirst || asked[2]-asked[1] < 2*retryFirst {
		t.Errorf("asked at %v", asked)
	}
}
