package handler

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

// fencingLauncher is a launcher that ends its guest without heartbeats.
type fencingLauncher struct {
	launcherpb.LauncherClient
	after time.Duration
	heard chan time.Duration
	// suspended has one for each request, unless it is nil.
	suspended chan bool
}

func (l *fencingLauncher) Renew(_ context.Context, r *launcherpb.RenewRequest, _ ...grpc.CallOption,
) (*launcherpb.RenewResponse, error) {
	l.heard <- r.Heard.AsDuration()
	if l.suspended != nil {
		l.suspended <- r.Suspend
	}
	return &launcherpb.RenewResponse{FenceAfter: durationpb.New(l.after)}, nil
}

// A launcher hears of each heartbeat, and the node beats often enough for it.
func TestHeartbeatsReachLaunchers(t *testing.T) {
	beats := 0
	n := &Node{}
	n.renewals.beat = func() { beats++ }
	s := &session{node: n, target: target{Pod: "a"}, log: slog.New(slog.DiscardHandler)}
	l := &fencingLauncher{after: time.Minute, heard: make(chan time.Duration)}
	if got := n.renewals.period(); got != nodestatus.Period {
		t.Errorf("without such launchers it beats every %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	started := make(chan struct{})
	work.Go(func() {
		s.awaitHeartbeat(ctx, l)
		close(started)
		s.keepRenewed(ctx, l)
	})
	if got := <-l.heard; got != 0 {
		t.Errorf("there was no heartbeat, and it heard of %s", got)
	}
	old := boottime.Now()
	n.renewals.took(old - 2*time.Minute + time.Nanosecond)
	<-l.heard
	select {
	case <-started:
		t.Error("it starts its guest after a heartbeat that is too old")
	default:
	}
	for _, sent := range []time.Duration{old, old + 1} {
		n.renewals.took(sent)
		if got := <-l.heard; got != sent {
			t.Errorf("it heard of %s, want %s", got, sent)
		}
		if sent == old {
			<-started
			<-l.heard // keepRenewed begins with the same
		}
	}
	if got := n.renewals.period(); got != time.Minute/8 || beats != 1 {
		t.Errorf("it beats every %s, asked for one %d times", got, beats)
	}
	cancel()
	work.Wait()
	if got := n.renewals.period(); got != nodestatus.Period {
		t.Errorf("when the launcher is gone it beats every %s", got)
	}
}

// A launcher that ends nothing is not asked again.
func TestHeartbeatsDoNotBotherOtherLaunchers(t *testing.T) {
	s := &session{node: &Node{}, target: target{Pod: "a"}, log: slog.New(slog.DiscardHandler)}
	l := &fencingLauncher{heard: make(chan time.Duration, 2)}
	s.awaitHeartbeat(t.Context(), l)
	s.keepRenewed(t.Context(), l)
}

// When virt-handler stops, the launchers that the cluster knows of are suspended, and no others.
func TestSuspend(t *testing.T) {
	n := &Node{}
	n.renewals.took(boottime.Now())
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	launchers := map[types.UID]*fencingLauncher{}
	for _, pod := range []types.UID{"a", "b"} {
		l := &fencingLauncher{after: time.Minute, heard: make(chan time.Duration, 9), suspended: make(chan bool, 9)}
		launchers[pod] = l
		s := &session{node: n, target: target{Pod: pod}, log: slog.New(slog.DiscardHandler)}
		work.Go(func() { s.keepRenewed(ctx, l) })
		if <-l.suspended {
			t.Fatalf("%s begins suspended", pod)
		}
	}
	for !n.renewals.counting("a") || !n.renewals.counting("b") {
		runtime.Gosched()
	}
	if missing := n.renewals.suspend(ctx, []types.UID{"a", "gone"}); missing != 0 {
		t.Errorf("%d launchers do not know", missing)
	}
	if a, b := <-launchers["a"].suspended, <-launchers["b"].suspended; !a || b {
		t.Errorf("suspended: a %t, b %t", a, b)
	}
	n.renewals.took(boottime.Now())
	if a, b := <-launchers["a"].suspended, <-launchers["b"].suspended; !a || b {
		t.Errorf("after another heartbeat: a %t, b %t", a, b)
	}
	cancel()
	work.Wait()

	// One that does not answer holds nobody up for long.
	var r renewals
	r.record("a", renewal{heard: 1}, time.Minute)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if missing := r.suspend(ctx, []types.UID{"a"}); missing != 1 {
		t.Errorf("%d launchers do not know", missing)
	}
}

// Other nodes' word is worth only what a launcher's own time allows, and is no heartbeat.
func TestCheckedTime(t *testing.T) {
	var r renewals
	r.record("short", renewal{}, time.Minute)
	r.record("long", renewal{}, 10*time.Minute)
	at := boottime.Now()
	r.noteSilence(at, fencing.SilentFor(time.Minute))
	if short, _ := r.latest("short"); short.heard != at {
		t.Errorf("it was not told: %s", short.heard)
	}
	if long, _ := r.latest("long"); long.heard != 0 {
		t.Error("nodes that have been silent for less than it takes have vouched for it")
	}
	first := r.silence()
	r.noteSilence(boottime.Now(), always)
	if long, _ := r.latest("long"); long.heard == 0 || r.silence() < first {
		t.Errorf("%+v, silent for %s", long, r.silence())
	}
	if got := r.fences(); !slices.Equal(got, []time.Duration{time.Minute, 10 * time.Minute}) {
		t.Errorf("%v", got)
	}
}
