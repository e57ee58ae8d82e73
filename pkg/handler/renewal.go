package handler

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/boottime"
	"github.com/virtkit/virtkit/pkg/handler/node"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const (
	// renewTimeout bounds the question to a launcher.
	renewTimeout = 5 * time.Second
	// beatsPerFence is how many heartbeats are sent in the time after which a launcher ends its guest.
	beatsPerFence = 4
)

// renewals pass on to launchers until when the cluster has heard of the node: the time before the last heartbeat was sent that
// the API server has taken. The zero value knows of none; it may be used by several goroutines.
type renewals struct {
	// beat asks for a heartbeat now; nil never does.
	beat func()

	mu      sync.Mutex
	heard   time.Duration
	changed chan struct{} // closed and replaced when heard changes
	after   map[types.UID]time.Duration
}

// took notes a heartbeat.
func (r *renewals) took(sent time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = sent
	if r.changed != nil {
		close(r.changed)
	}
	r.changed = make(chan struct{})
}

// latest is the last heartbeat, zero when there was none, and what is closed by the next one.
func (r *renewals) latest() (time.Duration, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.heard, r.changed
}

// period is how often the heartbeat is to be.
func (r *renewals) period() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	period := node.Period
	for _, after := range r.after {
		period = min(period, max(time.Second, after/beatsPerFence))
	}
	return period
}

// need notes that a launcher ends its guest so long after the last heartbeat, and forget that it is gone.
func (r *renewals) need(pod types.UID, after time.Duration) {
	r.mu.Lock()
	was := r.after[pod]
	if r.after == nil {
		r.after = map[types.UID]time.Duration{}
	}
	r.after[pod] = after
	r.mu.Unlock()
	if was != after && r.beat != nil {
		r.beat()
	}
}

func (r *renewals) forget(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.after, pod)
}

// awaitHeartbeat has a launcher that ends its guest without heartbeats hear of one before it gets a guest. What goes wrong is
// left to keepRenewed.
func (s *session) awaitHeartbeat(ctx context.Context, client launcherpb.LauncherClient) {
	for {
		heard, next := s.node.renewals.latest()
		after, err := renew(ctx, client, heard)
		if err != nil || after <= 0 {
			return
		}
		s.node.renewals.need(s.target.Pod, after)
		if heard > 0 && boottime.Now()-heard < after {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// keepRenewed passes each heartbeat to a launcher that ends its guest without, until ctx ends.
func (s *session) keepRenewed(ctx context.Context, client launcherpb.LauncherClient) {
	defer s.node.renewals.forget(s.target.Pod)
	for {
		heard, next := s.node.renewals.latest()
		after, err := renew(ctx, client, heard)
		switch {
		case err == nil && after <= 0, grpcstatus.Code(err) == codes.Unimplemented:
			return
		case err != nil && ctx.Err() == nil:
			s.log.Warn("the launcher was not told of the node's heartbeat", "error", describe(err))
			select {
			case <-ctx.Done():
			case <-next:
			case <-time.After(reconnectMost):
			}
			if ctx.Err() == nil {
				continue
			}
		case err == nil:
			s.node.renewals.need(s.target.Pod, after)
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// renew tells a launcher of the last heartbeat, and asks how long after it it ends its guest.
func renew(ctx context.Context, client launcherpb.LauncherClient, heard time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	request := &launcherpb.RenewRequest{}
	if heard > 0 {
		request.Heard = durationpb.New(heard)
	}
	response, err := client.Renew(ctx, request)
	if err != nil {
		return 0, err
	}
	return response.FenceAfter.AsDuration(), nil
}
