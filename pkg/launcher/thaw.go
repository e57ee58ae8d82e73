package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

// aMoment is the delay before the agent of a guest that was paused, and runs again, is asked to thaw what it may have
// frozen without reporting it. The caller who asked for the thaw does not wait for that, and goes first.
const aMoment = 200 * time.Millisecond

// rest is the delay before the agent is asked for all it knows after a freeze or a thaw, whose result is known already:
// until then its guest, and those who wait for the thaw, have more to do.
const rest = time.Second

// aFew is the delay before the next look whether another freeze or thaw is over.
const aFew = 50 * time.Millisecond

// limit has the guest go on by itself after a time that counts from began on (CLOCK_BOOTTIME), or never when it is
// zero, and has virt-handler know it. mu is held.
func (f *freezer) limit(ctx context.Context, began, after time.Duration) {
	if after <= 0 {
		f.lift(ctx)
		return
	}
	due := began + after
	f.arm(ctx, max(due-boottime.Now(), time.Millisecond))
	f.guest.setFreeze(&pb.Freeze{Began: durationpb.New(began), Due: durationpb.New(due)})
}

// lift undoes limit. mu is held.
func (f *freezer) lift(ctx context.Context) {
	f.arm(ctx, 0)
	f.guest.setFreeze(nil)
}

// arm sets the time until the thaw, or calls it off with zero.
func (f *freezer) arm(ctx context.Context, after time.Duration) {
	select {
	case f.after <- after:
	case <-ctx.Done():
	}
}

func (f *freezer) run(ctx context.Context) {
	var due <-chan time.Time
	var late, reported bool
	for {
		select {
		case <-ctx.Done():
			return
		case after := <-f.after:
			due, late, reported = nil, after != aMoment, false
			if after > 0 {
				due = time.After(after)
			}
		case <-due:
			due = nil
			if !f.mu.TryLock() {
				due = time.After(aFew) // who holds it may set another time
				continue
			}
			if late && !reported {
				f.log.Warn("nobody has unfrozen the guest in time; doing so")
				reported = true
			}
			again, err := f.undo(ctx, !late)
			if unanswered(err) && !f.asked && !f.guest.isHeld() {
				err = nil // nothing is paused, and there is no agent that could have frozen anything
			}
			if again || err != nil {
				due = time.After(interval)
			} else {
				f.guest.setFreeze(nil)
			}
			f.mu.Unlock()
			if err != nil {
				f.log.Warn("cannot unfreeze the guest", "err", err)
			}
		}
	}
}

// undo resumes a guest that a freeze has paused, and thaws its file systems. resumed says that it goes on already.
// again says that an agent is connected that has not answered: it may have been asked to freeze, and may do so yet. mu
// is held.
func (f *freezer) undo(ctx context.Context, resumed bool) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	conn, err := f.guest.connection(ctx)
	if err != nil {
		return false, err
	}
	held, err := f.resume(ctx, conn)
	if err != nil {
		return false, err
	}
	err = f.thaw(ctx, conn)
	if (held || resumed) && unanswered(err) {
		return f.guest.snapshot().GetAgentConnected(), nil
	}
	return false, err
}

// resume lets a guest go on that a freeze has paused, and reports whether it had.
func (f *freezer) resume(ctx context.Context, conn hypervisor.Connection) (held bool, err error) {
	if !f.guest.isHeld() {
		return false, nil
	}
	if err := f.stopSaving(ctx, conn); err != nil {
		return true, err
	}
	if err := goOn(ctx, conn); err != nil {
		return true, fmt.Errorf("resume the guest: %w", err)
	}
	f.guest.letGo()
	return true, nil
}

// goOn resumes a domain, unless it runs already, or has ended and waits for nobody.
func goOn(ctx context.Context, conn hypervisor.Connection) error {
	err := conn.Resume(ctx)
	if err == nil || errors.Is(err, hypervisor.ErrNoDomain) {
		return nil
	}
	d, gone := conn.Domain(ctx)
	if errors.Is(gone, hypervisor.ErrNoDomain) || gone == nil && d.Run != hypervisor.Paused {
		return nil
	}
	return err
}

func (f *freezer) thaw(ctx context.Context, conn hypervisor.Connection) error {
	_, err := conn.Agent(ctx, agent.Command("guest-fsfreeze-thaw", nil))
	if err == nil {
		f.frozen.Store(false)
		f.asked = false
		f.guest.setFrozen(thawed)
	}
	f.guest.wakeAgentAfter(rest)
	return err
}

// unanswered reports whether an error means that no agent has answered, or none in time.
func unanswered(err error) bool {
	return errors.Is(err, hypervisor.ErrNoAgent) || errors.Is(err, context.DeadlineExceeded)
}

// Unfreeze implements the contract.
func (s *service) Unfreeze(ctx context.Context, req *pb.UnfreezeRequest) (*pb.UnfreezeResponse, error) {
	s.freezer.mu.Lock()
	defer s.freezer.mu.Unlock()
	if !s.guest.exists() {
		_, err := s.asker(ctx)
		return nil, err
	}
	if req.Due != nil && s.guest.snapshot().GetFreeze().GetDue().AsDuration() != req.Due.AsDuration() {
		return &pb.UnfreezeResponse{}, nil
	}
	if s.guest.isHeld() && !s.freezer.frozen.Load() {
		return &pb.UnfreezeResponse{}, s.goOn(ctx)
	}
	again, err := s.freezer.undo(ctx, false)
	switch {
	case again:
		s.freezer.arm(s.life, interval)
	case err == nil:
		s.freezer.lift(s.life)
	case s.freezer.paused && unanswered(err) && s.guest.snapshot().GetFsfreezeStatus() != frozen:
		err = nil // nothing was frozen: the guest was paused
	}
	return &pb.UnfreezeResponse{}, freezeStatus("Unfreeze", err)
}

// goOn resumes a guest that was paused because no file system of it is known to be frozen.
func (s *service) goOn(ctx context.Context) error {
	conn, err := s.guest.connection(ctx)
	if err == nil {
		_, err = s.freezer.resume(ctx, conn)
	}
	if err == nil {
		s.freezer.arm(s.life, aMoment)
	}
	return freezeStatus("Unfreeze", err)
}
