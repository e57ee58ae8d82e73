package handler

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// stopTimeout bounds one request to stop a guest; a launcher that is starting it answers after that.
const stopTimeout = time.Minute

// stop asks for the guest's shutdown, with power-off at the time given. A later time than before changes nothing.
func (s *session) stop(by time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopBy.IsZero() && !by.Before(s.stopBy) {
		return
	}
	s.stopBy = by
	close(s.stopping)
	s.stopping = make(chan struct{})
}

func (s *session) stopRequest() (by time.Time, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopBy, s.stopping
}

// passStops hands each request to stop to the launcher.
func (s *session) passStops(ctx context.Context, client launcherpb.LauncherClient) {
	for {
		by, next := s.stopRequest()
		if !by.IsZero() {
			grace := max(0, by.Sub(s.node.Now()))
			asking, cancel := context.WithTimeout(ctx, stopTimeout)
			_, err := client.Shutdown(asking, &launcherpb.ShutdownRequest{GracePeriod: durationpb.New(grace)})
			cancel()
			if err != nil && ctx.Err() == nil {
				s.log.Warn("shutdown not taken", "err", describe(err))
				select {
				case <-ctx.Done():
					return
				case <-time.After(retryFirst):
				}
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// release lets a launcher go that will have no guest: it ends, and its pod with it. The launcher may
// have ended already, and the controller deletes the pod of a final VMI anyway.
func (s *session) release(ctx context.Context, client launcherpb.LauncherClient) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if _, err := client.Shutdown(ctx, &launcherpb.ShutdownRequest{}); err != nil {
		s.log.Info("launcher not released", "err", describe(err))
	}
}
