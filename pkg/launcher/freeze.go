package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

// freezeTimeout bounds a freeze, in which the guest writes out what its file systems still hold in memory.
const freezeTimeout = 25 * time.Second

// freezer lets a frozen guest's file systems go, or resumes the guest, when nobody does in time: a guest that waits
// for its disks for ever is worse than a backup that has to be made again.
type freezer struct {
	// mu is held by who freezes or unfreezes.
	mu    sync.Mutex
	guest *guest
	// paused says that the last freeze was a pause, for which no agent is asked. mu guards it.
	paused bool
	// asked says that an agent which was there was asked to freeze, and has not answered a thaw since. mu guards it.
	asked bool
	log   *slog.Logger
	// frozen says that the agent has frozen file systems, and has not said since that it has thawed them.
	frozen atomic.Bool
	// after takes the time until the next thaw; zero calls it off.
	after chan time.Duration
	// saving is the last save of the guest's memory, nil before the first; saves guards it. queue has the next to make.
	saves  sync.Mutex
	saving *saving
	queue  chan *saving
}

func newFreezer(g *guest, log *slog.Logger) *freezer {
	return &freezer{guest: g, log: log, after: make(chan time.Duration), queue: make(chan *saving, 1)}
}

// hold notes that a freeze is about to pause the guest, and refuses one that is leaving.
func (g *guest) hold() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Now().Leaving() {
		return errMoving
	}
	g.held = true
	g.pauses++
	return nil
}

// pause returns the number of the last pause by a freeze.
func (g *guest) pause() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pauses
}

func (g *guest) isHeld() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// letGo notes that no freeze is to resume the guest any more, and reports whether one was.
func (g *guest) letGo() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := g.held
	g.held = false
	return held
}

// errMoving refuses to freeze a guest that moves.
var errMoving = status.Error(codes.FailedPrecondition,
	"the guest is moving to another node; try again when it is there")

// errHeld is about a guest that a freeze has paused.
var errHeld = status.Error(codes.FailedPrecondition,
	"the guest is paused while it is being snapshotted; unfreeze it first, or wait until it goes on by itself")

// Freeze implements the contract.
func (s *service) Freeze(ctx context.Context, req *pb.FreezeRequest) (*pb.FreezeResponse, error) {
	began, after := boottime.Now(), req.UnfreezeAfter.AsDuration()
	if req.PauseWithoutAgent && after <= 0 {
		return nil, status.Error(codes.InvalidArgument, "a guest that may be paused needs a time to go on by itself")
	}
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	s.freezer.mu.Lock()
	defer s.freezer.mu.Unlock()
	if !s.guest.exists() {
		_, err := s.asker(ctx)
		return nil, err
	}
	if s.guest.leaving() {
		return nil, errMoving
	}
	if req.MemoryVolume != "" {
		return s.freezeWithMemory(ctx, req, began)
	}
	switch {
	case s.guest.isHeld() && !req.PauseWithoutAgent:
		return nil, errHeld
	case s.guest.isHeld():
		s.freezer.limit(s.life, began, after) // the timer may just have let it go on
		return s.pauseFrozen(ctx)
	case s.guest.snapshot().GetLifecycle() == pb.Lifecycle_LIFECYCLE_PAUSED && !req.PauseWithoutAgent:
		return nil, status.Error(codes.FailedPrecondition, "the guest is paused; unpause it first")
	case s.guest.snapshot().GetLifecycle() == pb.Lifecycle_LIFECYCLE_PAUSED && s.pausedBefore(ctx):
		s.freezer.paused = true
		return &pb.FreezeResponse{Quiesced: pb.Quiesced_QUIESCED_ALREADY_PAUSED}, nil
	}
	connected := s.guest.snapshot().GetAgentConnected()
	err := s.freezeByAgent(ctx, req.PauseWithoutAgent)
	s.freezer.asked = s.freezer.asked || connected || !unanswered(err)
	if !req.PauseWithoutAgent {
		began = boottime.Now() // as in KubeVirt the time counts from the agent's answer on
	}
	// Also after an error: the agent may have frozen some of them, or its answer may have come too late.
	s.freezer.limit(s.life, began, after)
	if req.PauseWithoutAgent && (unanswered(err) || errors.Is(err, errNotFrozen)) {
		return s.pauseFrozen(ctx)
	}
	s.freezer.paused = false
	s.guest.wakeAgentAfter(rest)
	return &pb.FreezeResponse{Quiesced: pb.Quiesced_QUIESCED_AGENT}, freezeStatus("Freeze", err)
}

// pausedBefore reports whether the domain is paused: what the guest's state says may be of a moment before it went on.
func (s *service) pausedBefore(ctx context.Context) bool {
	conn, err := s.guest.connection(ctx)
	if err != nil {
		return false
	}
	d, err := conn.Domain(ctx)
	return err == nil && d.Run == hypervisor.Paused
}

// freezeByAgent has the agent freeze the guest's file systems. hurry leaves time for something else.
func (s *service) freezeByAgent(ctx context.Context, hurry bool) error {
	if hurry {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, freezeTimeout/2)
		defer cancel()
	}
	ask, err := s.asker(ctx)
	if err != nil {
		return err
	}
	reply, err := ask(agent.Command("guest-fsfreeze-freeze", nil))
	var refusal *hypervisor.AgentError
	switch {
	case errors.As(err, &refusal):
		// It refuses to freeze twice.
		if err := s.frozenBefore(ask, hurry, err); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		n, err := agent.ParseFrozen(reply)
		switch {
		case !hurry:
		case err != nil:
			return fmt.Errorf("%w: %w", errNotFrozen, err)
		case n <= 0:
			return fmt.Errorf("%w: its agent has frozen %d", errNotFrozen, n)
		}
		s.freezer.frozen.Store(true)
	}
	s.guest.setFrozen(frozen)
	return nil
}

// frozenBefore returns an error, that of a freeze that the agent has refused or another, unless the file systems are
// frozen since an earlier one.
func (s *service) frozenBefore(ask func(command string) (string, error), hurry bool, refused error) error {
	reply, err := ask(agent.Command("guest-fsfreeze-status", nil))
	if err != nil {
		return errors.Join(refused, err)
	}
	was, err := agent.ParseFreezeStatus(reply)
	switch {
	case err != nil && hurry:
		return fmt.Errorf("%w: %w", errNotFrozen, err)
	case err != nil:
		return err
	case was != frozen:
		return refused
	case hurry && !s.freezer.frozen.Load():
		return fmt.Errorf("%w: its agent says that they are already", errNotFrozen)
	}
	return nil
}

// errNotFrozen is an agent of whose answer it does not follow that the guest writes no more.
var errNotFrozen = errors.New("nothing shows that the guest's file systems are frozen")

// pauseFrozen pauses the guest for a freeze whose timer runs already: from here on the guest goes on by itself,
// whatever becomes of the one who asked.
func (s *service) pauseFrozen(ctx context.Context) (*pb.FreezeResponse, error) {
	s.freezer.paused = true
	conn, err := s.guest.connection(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	d, err := conn.Domain(ctx)
	switch {
	case err != nil:
		return nil, agentStatus(err)
	case d.Run == hypervisor.Paused && s.guest.isHeld():
		return &pb.FreezeResponse{Quiesced: pb.Quiesced_QUIESCED_PAUSED}, nil
	case d.Run == hypervisor.Paused:
		return &pb.FreezeResponse{Quiesced: pb.Quiesced_QUIESCED_ALREADY_PAUSED}, nil
	case d.Run != hypervisor.Running:
		return nil, status.Error(codes.FailedPrecondition, wrongState(d.Run))
	}
	if err := s.guest.hold(); err != nil {
		return nil, err
	}
	if err := conn.Suspend(ctx); err != nil {
		return nil, agentStatus(err) // it may be paused all the same, and the timer lets it go on
	}
	return &pb.FreezeResponse{Quiesced: pb.Quiesced_QUIESCED_PAUSED}, nil
}

// freezeStatus does what agentStatus does, for a command of KubeVirt's. Where no agent answers, KubeVirt calls that an
// internal error, in words that its clients look for.
func freezeStatus(command string, err error) error {
	if errors.Is(err, hypervisor.ErrNoAgent) {
		return status.Errorf(codes.Internal, "command %s failed: %v; is qemu-guest-agent running in the guest?",
			command, err)
	}
	return agentStatus(err)
}
