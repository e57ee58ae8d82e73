package launcher

import (
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
)

// applyLocked takes the guest to the state that follows on an event, and does what belongs to the transition. An
// illegal event is a mistake of ours: it changes nothing, and is logged and counted (virt-handler's metric).
func (g *guest) applyLocked(e lifecycle.Event) {
	from, to, err := g.life.Apply(e)
	switch {
	case err != nil:
		g.log.Error("the guest's state does not change", "err", err, "count", g.life.Illegal())
		return
	case from == to:
		return
	}
	g.log.Debug("guest", "from", from.String(), "event", e.String(), "to", to.String())
	switch {
	case to == lifecycle.Received:
		if err := g.note(neverRan); err != nil {
			g.log.Warn("should the launcher be killed now, nobody will know that the guest has not run "+
				"here", "err", err)
		}
		close(g.here)
		g.updateLocked(func(s *pb.GuestState) { s.Arrived = true })
	case from == lifecycle.Received && g.life.NeverRan():
		close(g.died)
	case to == lifecycle.Active && (from == lifecycle.Received || from == lifecycle.Released):
		g.log.Warn("the guest runs here, and was not started by the launcher")
		if err := g.note(termination.Message{}); err != nil {
			g.log.Warn("the termination message says that it has not run", "err", err)
		}
	}
}

// illegal returns the number of events that the guest's state did not allow.
func (g *guest) illegal() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return uint32(g.life.Illegal())
}

// seen returns the event for a look at the domain.
func seen(d hypervisor.Domain) lifecycle.Event {
	switch {
	case d.Moving():
		return lifecycle.DomainMigrating
	case d.Run == hypervisor.Paused:
		return lifecycle.DomainPaused
	case d.Run == hypervisor.Stopping:
		return lifecycle.DomainStopping
	}
	return lifecycle.DomainRunning
}

// ended returns the event for a domain's end.
func ended(o hypervisor.Outcome) lifecycle.Event {
	switch o {
	case hypervisor.Shutdown:
		return lifecycle.DomainShutOff
	case hypervisor.Destroyed:
		return lifecycle.DomainDestroyed
	case hypervisor.Moved:
		return lifecycle.DomainMigrated
	}
	return lifecycle.DomainCrashed
}

// endLocked takes the domain's end, which is reported now, or kept in early as long as it is not known what it means.
func (g *guest) endLocked(end hypervisor.End) {
	if g.unplugged && end.Outcome != hypervisor.Moved {
		end = hypervisor.End{Outcome: hypervisor.Destroyed, Reason: "destroyed"}
	}
	from := g.life.Now()
	g.applyLocked(ended(end.Outcome))
	switch to := g.life.Now(); {
	case to.HoldsEnd():
		g.early = &end
	case to.Final() && !from.Final():
		g.reportEndLocked(from, end)
	}
}

// reportEndLocked reports how a guest has ended that was in a state.
func (g *guest) reportEndLocked(from lifecycle.State, end hypervisor.End) {
	moved := end.Outcome == hypervisor.Moved
	if from == lifecycle.PostCopyFailed && !moved {
		// Its plug was pulled, but not for its user.
		end = hypervisor.End{Outcome: hypervisor.Crashed, Reason: g.postCopyError}
	}
	crashed := end.Outcome == hypervisor.Crashed
	// However QEMU has ended: whoever has the guest's memory may go on with it.
	never := from.Target() && !from.MayHaveRun() && !moved
	switch {
	case never, crashed && !from.MayHaveRun():
		end.Reason = names.ReasonNeverRan
	case crashed:
		end.Reason = g.withSaid(end.Reason)
	}
	if g.terminated && !never && !crashed && !moved {
		end.Reason = names.ReasonTerminated
	}
	g.updateLocked(func(s *pb.GuestState) {
		s.Lifecycle, s.Reason, s.AgentConnected = finals[g.life.Now()], end.Reason, false
	})
}

// finals are the final states as virt-handler knows them.
var finals = map[lifecycle.State]pb.Lifecycle{
	lifecycle.ShutOff:      pb.Lifecycle_LIFECYCLE_SHUTOFF,
	lifecycle.Crashed:      pb.Lifecycle_LIFECYCLE_CRASHED,
	lifecycle.Destroyed:    pb.Lifecycle_LIFECYCLE_DESTROYED,
	lifecycle.MigratedAway: pb.Lifecycle_LIFECYCLE_MIGRATED,
}

// leaving reports whether the guest is on its way to another launcher.
func (g *guest) leaving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.Now().Leaving()
}
