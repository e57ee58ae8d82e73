package handler

import (
	"context"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/waits"
)

const (
	// thawTimeout bounds a request to undo a freeze, which waits for the guest's agent.
	thawTimeout = 30 * time.Second
	// thawRetryMost is the longest wait before a guest that is still frozen is thawed again.
	thawRetryMost = 10 * time.Second
)

// keepThawed undoes a freeze of the guest that nobody has undone in time, until ctx ends. The launcher says what there
// is to undo, also to a virt-handler that was started after the freeze. It does so itself a little later than this
// (snapshots.HandlerThaws).
func (s *session) keepThawed(ctx context.Context, client launcherpb.LauncherClient) {
	var last time.Duration // due of the freeze that was undone last
	var next time.Duration // no sooner than this anything is undone
	delay := waits.Doubling(retryFirst, thawRetryMost)
	for {
		freeze := s.observation().Guest.GetFreeze()
		var timer <-chan time.Time
		if freeze.GetDue() != nil {
			if left := max(thawAt(freeze), next) - boottime.Now(); left > 0 {
				timer = time.After(left)
			} else {
				if due := freeze.Due.AsDuration(); due != last {
					s.log.Warn("nobody has unfrozen the guest in time; doing so")
					last, delay = due, waits.Doubling(retryFirst, thawRetryMost)
				}
				s.thaw(ctx, client, freeze)
				next = boottime.Now() + delay()
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.freezes:
		case <-timer:
		}
	}
}

// thaw has the launcher undo a freeze, unless there is another one by now.
func (s *session) thaw(ctx context.Context, client launcherpb.LauncherClient, freeze *launcherpb.Freeze) {
	asking, cancel := context.WithTimeout(ctx, thawTimeout)
	defer cancel()
	_, err := client.Unfreeze(asking, &launcherpb.UnfreezeRequest{Due: freeze.Due})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot unfreeze the guest", "err", describe(err))
	}
}

// thawAt returns when virt-handler undoes a freeze.
func thawAt(freeze *launcherpb.Freeze) time.Duration {
	began := freeze.Began.AsDuration()
	return began + snapshots.HandlerThaws(freeze.Due.AsDuration()-began)
}
