package launcher

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/agent"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// freezeTimeout bounds a freeze, in which the guest writes out what its file systems still hold in memory.
const freezeTimeout = 25 * time.Second

// freezer lets a frozen guest's file systems go when nobody does in time: a guest that waits for its disks for
// ever is worse than a backup that has to be made again.
type freezer struct {
	guest *guest
	log   *slog.Logger
	// after takes the time until the next thaw; zero calls it off.
	after chan time.Duration
}

func newFreezer(g *guest, log *slog.Logger) *freezer {
	return &freezer{guest: g, log: log, after: make(chan time.Duration)}
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
	for {
		select {
		case <-ctx.Done():
			return
		case after := <-f.after:
			due = nil
			if after > 0 {
				due = time.After(after)
			}
		case <-due:
			due = nil
			f.log.Warn("nobody has unfrozen the guest in time; doing so")
			if err := f.thaw(ctx); err != nil {
				f.log.Warn("cannot unfreeze the guest", "err", err)
				due = time.After(interval)
			}
		}
	}
}

func (f *freezer) thaw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	conn, err := f.guest.connection(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Agent(ctx, agent.Command("guest-fsfreeze-thaw", nil))
	if err == nil {
		f.guest.update(func(state *pb.GuestState) { state.FsfreezeStatus = thawed })
	}
	f.guest.wakeAgent()
	return err
}

// Freeze implements the contract.
func (s *service) Freeze(ctx context.Context, req *pb.FreezeRequest) (*pb.FreezeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	ask, err := s.asker(ctx)
	if err != nil {
		return nil, err
	}
	if s.guest.leaving() {
		return nil,
			status.Error(codes.FailedPrecondition, "the guest is moving to another node; try again when it is there")
	}
	if s.guest.snapshot().GetLifecycle() == pb.Lifecycle_LIFECYCLE_PAUSED {
		return nil, status.Error(codes.FailedPrecondition, "the guest is paused; unpause it first")
	}
	// The agent refuses to freeze twice.
	was := ""
	reply, err := ask(agent.Command("guest-fsfreeze-status", nil))
	if err == nil {
		was, err = agent.ParseFreezeStatus(reply)
	}
	if err == nil && was != frozen {
		_, err = ask(agent.Command("guest-fsfreeze-freeze", nil))
	}
	if err == nil {
		s.guest.update(func(state *pb.GuestState) { state.FsfreezeStatus = frozen })
	}
	// Also after an error: the agent may have frozen some of them, or its answer may have come too late.
	s.freezer.arm(s.life, req.UnfreezeAfter.AsDuration())
	s.guest.wakeAgent()
	return &pb.FreezeResponse{}, freezeStatus("Freeze", err)
}

// Unfreeze implements the contract.
func (s *service) Unfreeze(ctx context.Context, _ *pb.UnfreezeRequest) (*pb.UnfreezeResponse, error) {
	if !s.guest.exists() {
		_, err := s.asker(ctx)
		return nil, err
	}
	err := s.freezer.thaw(ctx)
	if err == nil {
		s.freezer.arm(s.life, 0)
	}
	return &pb.UnfreezeResponse{}, freezeStatus("Unfreeze", err)
}

// freezeStatus is agentStatus for a command of KubeVirt's. Where no agent answers, KubeVirt calls that an internal
// error, in words that its clients look for.
func freezeStatus(command string, err error) error {
	if errors.Is(err, hypervisor.ErrNoAgent) {
		return status.Errorf(codes.Internal, "command %s failed: %v; is qemu-guest-agent running in the guest?",
			command, err)
	}
	return agentStatus(err)
}
