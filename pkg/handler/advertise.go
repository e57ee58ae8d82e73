package handler

import (
	"context"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/vm/network/router"
)

// advertise tells the guest of its IPv6 routers until ctx ends. Without it the guest keeps what it knows for hours.
func (s *session) advertise(ctx context.Context, process *podfs.Process) {
	plan := s.observation().Plan
	if plan == nil {
		return // the guest is ending
	}
	ns, err := process.Netns()
	if err != nil {
		s.log.Warn("cannot advertise routers to the guest", "err", err)
		return
	}
	defer ns.Close()
	for _, nic := range plan.Interfaces {
		frame, err := router.Frame(nic)
		if err != nil {
			s.log.Warn("cannot advertise a router to the guest", "err", err)
		}
		if frame == nil {
			continue
		}
		server, err := router.Listen(ns, nic.Tap, frame, s.log)
		if err != nil {
			s.log.Warn("cannot advertise a router to the guest", "interface", nic.Name, "err", err)
			continue
		}
		defer func() {
			if err := server.Close(); err != nil {
				s.log.Warn("cannot end advertisements to the guest", "interface", nic.Name, "err", err)
			}
		}()
	}
	<-ctx.Done()
}
