package launcher

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// fenced is a fence whose clock stands still.
type fenced struct {
	*fence
	clock time.Duration
	ends  int
}

func newFenced(after time.Duration) *fenced {
	f := &fenced{clock: 1000 * time.Second}
	f.fence = newFence(Options{FenceAfter: after})
	f.now = func() time.Duration { return f.clock }
	f.end = func(string) { f.ends++ }
	return f
}

// A guest is ended a fixed time after the heartbeat that its launcher has heard of last, and is not begun without one.
func TestFence(t *testing.T) {
	f := newFenced(time.Minute)
	if err := f.arm(); status.Code(err) != codes.FailedPrecondition {
		t.Fatalf("without a heartbeat: %v", err)
	}
	f.clock += time.Hour
	f.look()
	if f.ends != 0 {
		t.Fatal("a launcher that waits for its guest has ended")
	}
	if err := errors.Join(f.renew(f.clock-time.Second), f.arm()); err != nil {
		t.Fatal(err)
	}
	f.clock += 58 * time.Second
	f.look()
	if err := f.renew(f.clock - 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := f.renew(f.clock - 40*time.Second); err != nil { // an older one changes nothing
		t.Fatal(err)
	}
	f.clock += 29 * time.Second
	f.look()
	if f.ends != 0 {
		t.Fatal("it has ended too early")
	}
	f.clock += time.Second
	f.look()
	if f.ends != 1 {
		t.Fatal("it has not ended")
	}
	if err := f.renew(f.clock); err != nil || f.ends != 2 {
		t.Errorf("a late heartbeat undoes it: %v", err)
	}
}

// A launcher that is suspended ends nothing until it hears of a heartbeat again.
func TestSuspendedFence(t *testing.T) {
	f := newFenced(time.Minute)
	heard := f.clock
	if err := errors.Join(f.renew(heard), f.arm(), f.suspend(heard)); err != nil {
		t.Fatal(err)
	}
	f.clock += time.Hour
	f.look()
	if f.ends != 0 {
		t.Fatal("it ends while it is suspended")
	}
	// What the virt-handler before has sent comes late.
	if err := errors.Join(f.renew(f.clock), f.renew(f.clock)); err != nil {
		t.Fatal(err)
	}
	if err := f.suspend(heard); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a late request: %v", err)
	}
	f.clock += time.Minute
	f.look()
	if f.ends != 1 {
		t.Fatal("it does not count again")
	}
	// Nor does it save a guest whose time is over.
	if err := f.suspend(f.clock); err != nil || f.ends != 2 {
		t.Errorf("%v, ended %d times", err, f.ends)
	}
	// Before there is a guest there is nothing to suspend.
	f = newFenced(time.Minute)
	if err := errors.Join(f.renew(f.clock), f.suspend(f.clock), f.arm()); err != nil {
		t.Fatal(err)
	}
	f.clock += time.Minute
	f.look()
	if f.ends != 1 {
		t.Error("a guest that came later is suspended")
	}
}

// A heartbeat of the future would let a guest live on.
func TestFenceRefusesTheFuture(t *testing.T) {
	f := newFenced(time.Minute)
	if err := f.renew(f.clock + time.Second); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if err := f.arm(); err == nil {
		t.Error("it has counted")
	}
}

// Nobody needs to ask for it: virt-handler may be dead.
func TestFenceRuns(t *testing.T) {
	f := newFenced(time.Minute)
	ticks, ended := make(chan time.Time), make(chan struct{})
	f.tick = func(time.Duration) <-chan time.Time { return ticks }
	once := sync.OnceFunc(func() { close(ended) })
	f.end = func(string) { once() }
	if err := errors.Join(f.renew(f.clock), f.arm()); err != nil {
		t.Fatal(err)
	}
	f.clock += time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	ticks <- time.Time{}
	<-ended
	cancel()
	running.Wait()
}

// A launcher that was started without --fence-after says so, and starts its guest as ever.
func TestRenewWithoutFence(t *testing.T) {
	l := begin(t)
	l.mustStart()
	r, err := l.client.Renew(t.Context(), &pb.RenewRequest{Heard: durationpb.New(time.Second)})
	if err != nil || r.FenceAfter.AsDuration() != 0 {
		t.Errorf("%v, %v", r, err)
	}
	l.sigterm()
}
