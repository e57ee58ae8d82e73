package handler

import (
	"context"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/waits"
)

// sync brings something of the guest to what its VMI says, until ctx ends: it calls do whenever the VMI has changed,
// after a failure again and again, at most after most, and otherwise after what do returns, 0 for not before the next
// change. what says in the log what it is about.
func (s *session) sync(
	ctx context.Context, what string, most time.Duration,
	do func(vmi *v1.VirtualMachineInstance) (time.Duration, error),
) {
	delay := waits.Doubling(retryFirst, most)
	for {
		s.mu.Lock()
		vmi, renewed := s.vmi, s.renewed
		s.mu.Unlock()
		var again <-chan time.Time
		switch look, err := do(vmi); {
		case err != nil && ctx.Err() == nil:
			wait := delay()
			s.log.Warn(what, "err", describe(err), "again", wait)
			again = time.After(wait)
		case look > 0:
			delay, again = waits.Doubling(retryFirst, most), time.After(look)
		default:
			delay = waits.Doubling(retryFirst, most)
		}
		select {
		case <-ctx.Done():
			return
		case <-renewed:
		case <-again:
		}
	}
}
