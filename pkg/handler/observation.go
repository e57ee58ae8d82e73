package handler

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// observation holds what a session knows. A published one is never changed.
type observation struct {
	Guest        *launcherpb.GuestState
	Plan         *network.Plan
	Failure      *vmistatus.Failure
	NeverStarted bool
	// Prepared: the launcher waits for a guest that comes by a migration.
	Prepared bool
	// ReceivedAt is when an incoming guest was first seen here, complete.
	ReceivedAt time.Time
	// Outgoing is a migration away from here that failed before the launcher knew of it.
	Outgoing *vmistatus.Outgoing
	// Volumes holds the state of hotplugged volumes, by name.
	Volumes map[string]vmistatus.Volume
	// Unsized is the reason why the guest could not be given the size in its VMI, or "" when nothing is wrong.
	Unsized string
	// Unlinked is the reason why the guest's interfaces are not as its VMI says, or "" when nothing is wrong.
	Unlinked string
	// Unrated is the reason why the guest's rate limits are not those of its VMI, or "" when nothing is wrong.
	Unrated string
	// Unpoliced is the reason why the MultiNetworkPolicies in the guest's pod are not those that hold, or "" when
	// nothing is wrong.
	Unpoliced string
	// Growth says how the guest's disks got the sizes of their claims.
	Growth vmistatus.Growth
	// LostAt is when the launcher stopped answering, zero while it answers or before it first did.
	LostAt time.Time
	// Dead says that the process which served the launcher's socket has ended.
	Dead bool
}

func (s *session) observation() observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// publish changes the observation.
func (s *session) publish(urgent bool, change func(*observation)) {
	s.mu.Lock()
	change(&s.seen)
	s.mu.Unlock()
	s.changed(urgent)
}

// report publishes what an attempt has come to, unless ctx has ended: that one has failed by that alone, and the next
// session makes another.
func (s *session) report(ctx context.Context, urgent bool, change func(*observation)) {
	if ctx.Err() == nil {
		s.publish(urgent, change)
	}
}

// knows publishes whether the process that served the launcher's socket has ended, and the guest with it.
func (s *session) knows(dead bool) {
	s.publish(false, func(o *observation) { o.Dead = dead })
	if dead {
		s.gone(streams.ErrEnded)
	}
}

// saw publishes a state of the guest.
func (s *session) saw(state *launcherpb.GuestState) {
	old := s.observation()
	was, is := old.Guest.GetMigration(), state.GetMigration()
	migrates := was.GetPhase() != is.GetPhase() || was.GetMode() != is.GetMode()
	urgent := old.Guest == nil || !old.LostAt.IsZero() || old.Guest.Lifecycle != state.Lifecycle || migrates ||
		old.Guest.Arrived != state.Arrived || old.Guest.Vcpus != state.Vcpus ||
		old.Guest.MemoryRequested != state.MemoryRequested
	s.publish(urgent, func(o *observation) {
		o.Guest, o.LostAt, o.Dead = state, time.Time{}, false
		if state.Arrived && o.ReceivedAt.IsZero() {
			o.ReceivedAt = s.node.Now()
		}
		if state.Lifecycle != launcherpb.Lifecycle_LIFECYCLE_NONE {
			o.Failure = nil
		}
	})
	switch {
	case moved(state):
		s.gone(streams.ErrMoved)
	case state.GetLifecycle().Final():
		s.gone(streams.ErrEnded)
	}
	if !proto.Equal(old.Guest.GetFreeze(), state.GetFreeze()) {
		s.freezes.call()
	}
	if old.Guest != nil && !runsArrived(old.Guest) && runsArrived(state) {
		s.arrivals.call()
	}
	if handing(old.Guest) != handing(state) {
		s.wakeOutgoing()
	}
	if migrates || was.GetUid() != is.GetUid() || was.GetCut() != is.GetCut() {
		s.wakeOutgoing()
		if is.GetPhase() == launcherpb.MigrationPhase_MIGRATION_PHASE_COMPLETED {
			took := is.EndedAt.AsTime().Sub(is.StartedAt.AsTime())
			s.log.Info("guest left", "migration", is.Uid, "took", took, "downtime", is.Downtime.AsDuration())
		}
	}
}
