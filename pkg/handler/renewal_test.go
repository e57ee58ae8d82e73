package handler

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtkit/virtkit/pkg/boottime"
	"github.com/virtkit/virtkit/pkg/handler/node"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// fencingLauncher is a launcher that ends its guest without heartbeats.
type fencingLauncher struct {
	launcherpb.LauncherClient
	after time.Duration
	heard chan time.Duration
}

func (l *fencingLauncher) Renew(_ context.Context, r *launcherpb.RenewRequest, _ ...grpc.CallOption) (*launcherpb.RenewResponse, error) {
	l.heard <- r.Heard.AsDuration()
	return &launcherpb.RenewResponse{FenceAfter: durationpb.New(l.after)}, nil
}

// A launcher hears of each heartbeat, and the node beats often enough for it.
func TestHeartbeatsReachLaunchers(t *testing.T) {
	beats := 0
	n := &Node{}
	n.renewals.beat = func() { beats++ }
	s := &session{node: n, target: target{Pod: "a"}, log: slog.New(slog.DiscardHandler)}
	l := &fencingLauncher{after: time.Minute, heard: make(chan time.Duration)}
	if got := n.renewals.period(); got != node.Period {
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
	if got := n.renewals.period(); got != 15*time.Second || beats != 1 {
		t.Errorf("it beats every %s, asked for one %d times", got, beats)
	}
	cancel()
	work.Wait()
	if got := n.renewals.period(); got != node.Period {
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
