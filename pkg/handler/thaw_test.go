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

// Unfreeze keeps to the contract, as a launcher does that has no timer of its own.
func (l *fakeLauncher) Unfreeze(
	_ context.Context, r *launcherpb.UnfreezeRequest,
) (*launcherpb.UnfreezeResponse, error) {
	l.mu.Lock()
	l.thaws = append(l.thaws, boottime.Now())
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

func (l *fakeLauncher) thawed() (is bool, asked []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Freeze == nil, append([]time.Duration(nil), l.thaws...)
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

func (w *world) eventuallyThawed() []time.Duration {
	w.t.Helper()
	w.eventually("the guest is thawed", func() bool { is, _ := w.launcher.thawed(); return is })
	_, asked := w.launcher.thawed()
	return asked
}

// A guest that nobody has thawed in time is thawed by virt-handler, before its launcher would do it.
func TestThawsInTime(t *testing.T) {
	w, _ := frozenWorld(t)
	for range 2 {
		_, before := w.launcher.thawed()
		most := 2 * time.Second
		due := w.launcher.freeze(most)
		asked := w.eventuallyThawed()[len(before):]
		if len(asked) != 1 || asked[0] < due-most/20 || asked[0] >= due {
			t.Errorf("asked at %v, which is to be just before %v", asked, due)
		}
	}
}

// The virt-handler of now learns of the freeze from the launcher.
func TestThawsAfterARestart(t *testing.T) {
	w, h := frozenWorld(t)
	w.launcher.freeze(2 * time.Second)
	h.stop()
	if is, asked := w.launcher.thawed(); is || len(asked) > 0 {
		t.Fatalf("it was thawed at once: %v", asked)
	}
	h = w.startHandler()
	w.eventuallyThawed()

	h.stop()
	w.launcher.freeze(time.Millisecond) // it is over when virt-handler comes back
	w.startHandler()
	w.eventuallyThawed()
}

// A freeze that is renewed has its new time, and one that was undone or has no time is left alone.
func TestThawsNoOtherFreeze(t *testing.T) {
	w, _ := frozenWorld(t)
	w.launcher.freeze(300 * time.Millisecond)
	due := w.launcher.freeze(time.Second)
	asked := w.eventuallyThawed()
	if len(asked) != 1 || asked[0] < due-50*time.Millisecond {
		t.Errorf("asked at %v; it was due at %v", asked, due)
	}
	w.launcher.freeze(100 * time.Millisecond)
	for _, change := range []func(*launcherpb.GuestState){
		func(s *launcherpb.GuestState) { s.Freeze = nil },
		func(s *launcherpb.GuestState) { s.Freeze = &launcherpb.Freeze{} },
		func(s *launcherpb.GuestState) { s.Freeze, s.FsfreezeStatus = nil, "frozen" }, // by hand, or for ever
	} {
		w.launcher.set(change)
	}
	w.eventually("the last is known", func() bool { return w.vmi().Status.FSFreezeStatus == "frozen" })
	due = w.launcher.freeze(400 * time.Millisecond)
	w.eventually("it is thawed again", func() bool { is, _ := w.launcher.thawed(); return is })
	if _, all := w.launcher.thawed(); len(all) != len(asked)+1 || all[len(asked)] < due-50*time.Millisecond {
		t.Errorf("asked at %v; it was due at %v", all[len(asked):], due)
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
	w.launcher.freeze(time.Millisecond)
	asked := w.eventuallyThawed()
	if len(asked) != 3 || asked[1]-asked[0] < retryFirst || asked[2]-asked[1] < 2*retryFirst {
		t.Errorf("asked at %v", asked)
	}
}
