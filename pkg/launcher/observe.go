package launcher

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/names"
)

// refresh asks the daemon how the guest is. With first, on a new connection, a domain that is not known yet is ours,
// having been created as the last connection was lost; and one that is missing has ended unseen.
func (g *guest) refresh(ctx context.Context, conn hypervisor.Connection, first bool) {
	d, err := conn.Domain(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case errors.Is(err, hypervisor.ErrNoDomain):
		if first {
			g.endUnseenLocked()
		}
	case err != nil:
		g.log.Warn("cannot ask libvirtd for the guest's state", "err", err)
	default:
		if first {
			g.applyLocked(lifecycle.DomainFound)
		}
		g.applyLocked(seen(d))
		if g.life.Now().HasGuest() {
			g.observeLocked(d)
		}
	}
}

// endUnseenLocked ends a guest that was here before the connection, and of whose end the daemon says nothing.
func (g *guest) endUnseenLocked() {
	if g.inherited && g.early == nil && !g.life.Now().Final() {
		g.endLocked(g.lastWords())
	}
}

// observeLocked records what a domain looks like.
func (g *guest) observeLocked(d hypervisor.Domain) {
	connected := d.AgentConnected && !g.state.AgentConnected
	g.updateLocked(func(s *pb.GuestState) {
		waits := g.life.Now() == lifecycle.HandingOver && s.Reason == names.ReasonHandoff
		s.Lifecycle, s.Reason = g.lifecycleLocked(d), d.Reason
		if waits {
			s.Reason = names.ReasonHandoff
		}
		if s.StartedAt == nil {
			s.StartedAt = timestamppb.Now()
		}
		s.Emulation = d.Emulated
		s.Machine = d.Machine
		s.MemoryAtBoot, s.MemoryCurrent, s.MemoryRequested = d.MemoryAtBoot, d.Memory, 0
		if d.Plugged != nil {
			s.MemoryRequested = d.Plugged.Requested
		}
		s.Vcpus = uint32(d.VCPUs)
		s.AgentConnected = d.AgentConnected
		if d.Disks != nil {
			s.VolumeTargets = volumeTargets(d)
		}
		if d.Links != nil {
			s.InterfaceLinks = interfaceLinks(d.Links)
		}
		if !d.AgentConnected {
			s.AgentVersion, s.GuestOsJson, s.InterfacesJson, s.FsfreezeStatus = "", nil, nil, ""
			s.AgentLacks = nil
		}
	})
	if connected {
		g.wakeAgent()
	}
}

func (g *guest) lifecycleLocked(d hypervisor.Domain) pb.Lifecycle {
	switch {
	case g.life.Now() == lifecycle.HandingOver && g.state.Reason == names.ReasonHandoff:
		return pb.Lifecycle_LIFECYCLE_PAUSED
	case d.Run == hypervisor.Stopping, !g.stopAt.IsZero():
		return pb.Lifecycle_LIFECYCLE_SHUTTING_DOWN
	case d.Run == hypervisor.Paused && !g.held && !g.pausedToMoveLocked(d): // held is over soon, and nobody's to end
		return pb.Lifecycle_LIFECYCLE_PAUSED
	}
	return pb.Lifecycle_LIFECYCLE_RUNNING
}

// pausedToMoveLocked reports whether the guest stands still because it moves.
func (g *guest) pausedToMoveLocked(d hypervisor.Domain) bool {
	return g.life.Now().Leaving() && (d.Moving() || g.state.Migration.GetMode() != preCopy)
}
