package handler

import (
	"context"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

const (
	// announcements is how often a guest's addresses are announced, announcePause the time in between: RFC 4861's
	// MAX_NEIGHBOR_ADVERTISEMENT and RETRANS_TIMER, since nobody says that one has been lost.
	announcements = 3
	announcePause = time.Second
)

// announceIn is announce in the pod of a process.
func (s *session) announceIn(ctx context.Context, process *podfs.Process) {
	s.announce(ctx, func(plan network.Plan) error {
		ns, err := process.Netns()
		if err != nil {
			return err
		}
		defer ns.Close()
		return apply.Announce(ns, plan)
	})
}

// announce has tell say to the guest's networks that its addresses are here, once the guest runs here after a
// migration. What is left to say when the guest is paused is said when it is resumed.
func (s *session) announce(ctx context.Context, tell func(network.Plan) error) {
	for left := announcements; left > 0; {
		select {
		case <-ctx.Done():
			return
		case <-s.arrivals:
		}
		for ; left > 0; left-- {
			o := s.observation()
			if o.Plan == nil || !runsArrived(o.Guest) {
				break
			}
			if err := tell(linked(*o.Plan, o.Guest)); err != nil {
				s.log.Warn("cannot announce the guest's addresses to its networks", "err", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(announcePause):
			}
		}
	}
}

// linked returns a plan without the interfaces whose links are down: the guest cannot answer there, and somebody else
// may have its addresses.
func linked(plan network.Plan, guest *launcherpb.GuestState) network.Plan {
	links := guest.GetInterfaceLinks()
	plan.Interfaces = slices.DeleteFunc(slices.Clone(plan.Interfaces), func(nic network.Interface) bool {
		return links[nic.Name] == string(v1.InterfaceStateLinkDown)
	})
	return plan
}

// runsArrived reports whether a guest that has come by a migration runs.
func runsArrived(guest *launcherpb.GuestState) bool {
	return guest.GetArrived() && guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_RUNNING
}
