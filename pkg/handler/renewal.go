package handler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

const (
	// renewTimeout bounds the question to a launcher.
	renewTimeout = 5 * time.Second
	// suspendTimeout bounds what is waited for launchers when virt-handler stops.
	suspendTimeout = 5 * time.Second
)

// renewals pass on to launchers until when nobody can have fenced the node (package fencing): the time before the last
// heartbeat was sent that the API server has taken, or before the other nodes said so. The zero value knows of none; it
// may be used by several goroutines.
type renewals struct {
	// beat asks for a heartbeat now; nil never does.
	beat func()

	mu sync.Mutex
	// heard is the time of the last heartbeat; acknowledged is when its answer came, or since when this virt-handler
	// waits for the first.
	heard, acknowledged time.Duration
	// checked has the time of the last peer check in the launcher's favour by its --fence-after; after has that by pod.
	checked map[time.Duration]time.Duration
	after   map[types.UID]time.Duration
	// renewed are the launchers that count, by this virt-handler's word; suspended those that are not to, and whether
	// they know.
	renewed   map[types.UID]bool
	suspended map[types.UID]bool
	// held are the launchers that do not count while this virt-handler runs.
	held    map[types.UID]bool
	changed chan struct{} // closed and replaced when there is news for launchers
	quiet   chan struct{} // closed when all of suspended know
}

// renewal is the message to a launcher.
type renewal struct {
	heard   time.Duration
	suspend bool
}

func (r *renewals) notify() {
	if r.changed != nil {
		close(r.changed)
	}
	r.changed = make(chan struct{})
}

// took notes a heartbeat.
func (r *renewals) took(sent time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard, r.acknowledged = sent, boottime.Now()
	r.notify()
}

// silence returns how long no heartbeat was acknowledged. It is not known what an earlier virt-handler has heard, so
// that this counts from its own start.
func (r *renewals) silence() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := boottime.Now()
	if r.acknowledged == 0 {
		r.acknowledged = now
	}
	return now - r.acknowledged
}

// noteSilence notes that a majority has been silent for so long, asked for after at. It is no heartbeat: this node
// itself stays silent.
func (r *renewals) noteSilence(at, silence time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checked == nil {
		r.checked = map[time.Duration]time.Duration{}
	}
	news := false
	for _, after := range r.after {
		if silence >= fencing.SilentFor(after) {
			r.checked[after], news = at, true
		}
	}
	if news {
		r.notify()
	}
}

// fences returns the launchers' --fence-after, each once, the shortest first.
func (r *renewals) fences() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(slices.Sorted(maps.Values(r.after)))
}

// latest returns the message for a launcher, and a channel that is closed when it may have changed.
func (r *renewals) latest(pod types.UID) (renewal, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	_, stops := r.suspended[pod]
	return renewal{heard: max(r.heard, r.checked[r.after[pod]]), suspend: stops || r.held[pod]}, r.changed
}

// period returns the interval of the heartbeat.
func (r *renewals) period() time.Duration {
	period := nodestatus.Period
	for _, after := range r.fences() {
		period = min(period, fencing.HeartbeatPeriod(after))
	}
	return period
}

// record notes that a launcher was renewed, and that it ends its guest so long after.
func (r *renewals) record(pod types.UID, n renewal, after time.Duration) {
	r.mu.Lock()
	was := r.after[pod]
	if r.after == nil {
		r.after, r.renewed = map[types.UID]time.Duration{}, map[types.UID]bool{}
	}
	r.after[pod] = after
	switch {
	case n.suspend:
		delete(r.renewed, pod)
		if _, stops := r.suspended[pod]; stops {
			r.suspended[pod] = true
			r.settled()
		}
	case n.heard > 0 && !r.held[pod]: // else what is sent next suspends it
		r.renewed[pod] = true
	}
	r.mu.Unlock()
	if was != after && r.beat != nil {
		r.beat()
	}
}

// forget is called when a launcher is gone.
func (r *renewals) forget(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.after, pod)
	delete(r.renewed, pod)
	delete(r.suspended, pod)
	r.settled()
}

// settled closes quiet when all launchers know that they are suspended.
func (r *renewals) settled() {
	if r.quiet != nil && r.waiting() == 0 {
		close(r.quiet)
		r.quiet = nil
	}
}

// waiting returns how many launchers have yet to hear that they are suspended.
func (r *renewals) waiting() int {
	n := 0
	for _, done := range r.suspended {
		if !done {
			n++
		}
	}
	return n
}

// counting reports whether a launcher counts by this virt-handler's word.
func (r *renewals) counting(pod types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewed[pod]
}

// pausable returns the launchers that can be suspended.
func (r *renewals) pausable() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.after))
}

// hold has these launchers, and no others, not count. The cluster must know that they do not.
func (r *renewals) hold(pods []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := map[types.UID]bool{}
	for _, pod := range pods {
		held[pod] = true
		delete(r.renewed, pod)
	}
	if maps.Equal(held, r.held) {
		return
	}
	r.held = held
	r.notify()
}

// suspend has launchers not count until the next virt-handler renews them, and returns how many were not reached in
// time. The cluster must know that they do not count.
func (r *renewals) suspend(ctx context.Context, pods []types.UID) int {
	r.mu.Lock()
	r.suspended = map[types.UID]bool{}
	for _, pod := range pods {
		if _, there := r.after[pod]; there {
			r.suspended[pod] = false
		}
	}
	quiet := make(chan struct{})
	r.quiet = quiet
	r.settled()
	r.notify()
	r.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-quiet:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting()
}

// awaitHeartbeat has a launcher that ends its guest without heartbeats hear of one before it gets a guest. What goes
// wrong is left to keepRenewed.
func (s *session) awaitHeartbeat(ctx context.Context, client launcherpb.LauncherClient) {
	for {
		latest, next := s.node.renewals.latest(s.target.Pod)
		after, err := renew(ctx, client, latest)
		if err != nil || after <= 0 {
			return
		}
		s.node.renewals.record(s.target.Pod, latest, after)
		if latest.heard > 0 && boottime.Now()-latest.heard < after {
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
		latest, next := s.node.renewals.latest(s.target.Pod)
		after, err := renew(ctx, client, latest)
		switch {
		case err == nil && after <= 0, grpcstatus.Code(err) == codes.Unimplemented:
			return
		case err != nil && ctx.Err() == nil:
			s.log.Warn("the launcher did not get the node's heartbeat", "err", describe(err))
			select {
			case <-ctx.Done():
			case <-next:
			case <-time.After(reconnectMost):
			}
			if ctx.Err() == nil {
				continue
			}
		case err == nil:
			s.node.renewals.record(s.target.Pod, latest, after)
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// renew sends a launcher the last heartbeat, and asks how long after it it ends its guest.
func renew(ctx context.Context, client launcherpb.LauncherClient, latest renewal) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	request := &launcherpb.RenewRequest{Suspend: latest.suspend}
	if latest.heard > 0 {
		request.Heard = durationpb.New(latest.heard)
	}
	response, err := client.Renew(ctx, request)
	if err != nil {
		return 0, err
	}
	return response.FenceAfter.AsDuration(), nil
}
