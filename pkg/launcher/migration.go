package launcher

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// socketGate is the socket of the launcher's own gate.
const socketGate = "migration-gate.sock"

// move is one migration to make.
type move struct {
	uid string
	to  hypervisor.Migration
	// handoff is the socket behind which the other launcher says that the guest is there.
	handoff string
	// gate is the socket at which libvirt finds the way to the other one; empty without a gate.
	gate string
	// images is the socket behind which it takes the images of cloud-init and sysprep.
	images string
	limits limits
	// abort has a value once libvirt was asked in vain to end the migration.
	abort chan struct{}
	// over is closed at its end.
	over chan struct{}
}

// outgoing holds what is to be known of a migration besides the guest's state.
type outgoing struct {
	// paused says that the guest was paused when the migration began, and is to stay so; cancelled, that the migration
	// was asked to end.
	paused, cancelled bool
	// gaveUp is the reason for which we ended it, if we did.
	gaveUp string
	// abort is the abort channel of its move.
	abort chan struct{}
	// account is the last look at the migration; nil before the first.
	account *hypervisor.Progress
	// stopped is when the guest was stopped, to be copied as a whole; zero before, and for one that was paused.
	stopped time.Time
	// handedOver is closed when it is known which launcher has the guest after the handoff.
	handedOver chan struct{}
	// over is closed when libvirt has done with the migration, too; nil without one.
	over chan struct{}
}

// Migrate implements the contract.
func (s *service) Migrate(ctx context.Context, req *pb.MigrateRequest) (*pb.MigrateResponse, error) {
	if req.Uid == "" {
		return nil, status.Error(codes.InvalidArgument, "uid: is empty")
	}
	in := func(name string) string { return filepath.Join(s.options.RunDir, name) }
	l := req.Limits
	var disks []hypervisor.MovedDisk
	for _, d := range req.Disks {
		to := hypervisor.MovedDisk{Alias: domain.VolumeAlias(d.Volume), Path: s.options.Disks.ClaimImage(d.Volume)}
		if d.Plugged {
			to.Path = s.options.Disks.PluggedImage(d.Volume)
		}
		if d.Block {
			to.Path, to.Block = s.options.Disks.BlockDevice(d.Volume), true
		}
		disks = append(disks, to)
	}
	return &pb.MigrateResponse{}, s.guest.migrate(move{
		uid:     req.Uid,
		handoff: in(names.SocketMigrationHandoff),
		gate:    in(socketGate),
		images:  in(names.SocketMigrationImages),
		limits:  limitsOf(l),
		to: hypervisor.Migration{
			Peer:      in(names.SocketMigrationPeer),
			Memory:    in(names.SocketMigrationMemory),
			Disks:     in(names.SocketMigrationDisks),
			CopyBelow: s.options.Disks.Disks,
			Moved:     disks,
			// With post-copy it has to run there before all of it is: libvirt decides where.
			Held:         !l.GetPostCopy(),
			Bandwidth:    l.GetBandwidth(),
			AutoConverge: l.GetAutoConverge(), PostCopy: l.GetPostCopy(), Unsafe: l.GetUnsafe(),
			Connections: int(l.GetConnections()), MaxDowntime: firstDowntime,
		},
	})
}

// CancelMigration implements the contract.
func (s *service) CancelMigration(
	ctx context.Context, req *pb.CancelMigrationRequest,
) (*pb.CancelMigrationResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	if err := s.guest.cancelMigration(ctx, req.Uid); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &pb.CancelMigrationResponse{}, nil
}

// migrate begins a migration.
func (g *guest) migrate(m move) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.state.Migration.GetUid() == m.uid:
		return nil
	case !g.life.Now().HasGuest(), g.life.Now() == lifecycle.PostCopyFailed:
		return status.Error(codes.FailedPrecondition, "the guest does not run")
	case !g.stopAt.IsZero():
		return status.Error(codes.FailedPrecondition, "the guest is shutting down")
	case g.life.Now().Leaving():
		return status.Error(codes.FailedPrecondition, "another migration of the guest is under way")
	case g.held:
		return errHeld
	case g.state.FsfreezeStatus == frozen:
		// The launcher that it goes to would not know when to let it go.
		return status.Error(codes.FailedPrecondition,
			"the guest's file systems are frozen; unfreeze them first, or wait until they are unfrozen by themselves")
	}
	g.applyLocked(lifecycle.Migrate)
	g.early = nil
	select {
	case <-g.decided: // of the one before
	default:
	}
	m.abort = make(chan struct{}, 1)
	m.over = make(chan struct{})
	g.migration = outgoing{
		paused: g.state.Lifecycle == pb.Lifecycle_LIFECYCLE_PAUSED, abort: m.abort, over: m.over,
	}
	g.moves <- m // taken or empty, since no other is under way
	g.updateLocked(func(s *pb.GuestState) {
		s.Migration = &pb.Migration{
			Uid: m.uid, Phase: pb.MigrationPhase_MIGRATION_PHASE_RUNNING, StartedAt: timestamppb.Now(),
		}
	})
	return nil
}

// move makes the migrations that leave has begun, until ctx ends.
func (g *guest) move(ctx context.Context) {
	for {
		select {
		case m := <-g.moves:
			g.moveTo(ctx, m)
		case <-ctx.Done():
			return
		}
	}
}

func (g *guest) moveTo(ctx context.Context, m move) {
	defer close(m.over)
	conn, err := g.connection(ctx)
	var result hypervisor.Migrated
	var l *link
	if err == nil {
		l, err = g.reach(ctx, &m)
	}
	if err == nil {
		err = g.giveImages(ctx, m)
	}
	if err == nil && g.migrationCancelled() {
		err = errCancelled
	}
	if err == nil {
		watching, done := context.WithCancel(ctx)
		var watcher sync.WaitGroup
		watcher.Go(func() { insist(watching, conn, m.abort) })
		watcher.Go(func() { g.watchMove(watching, m.limits) })
		result, err = conn.Migrate(ctx, m.to)
		done()
		g.awaitWatcher(&watcher)
		if !g.awaitHandoff(ctx) {
			l.close(false)
			return // the launcher ends, and its termination message says where the guest is
		}
	}
	if err != nil && !g.isElsewhere() {
		g.log.Warn("migration failed", "uid", m.uid, "err", err)
		err = g.resolveFailure(ctx, g.reasonOf(err))
	} else {
		err = nil
	}
	if l != nil {
		// Before the guest's end is known, since the launcher ends with it.
		l.close(err == nil)
	}
	if err == nil {
		g.completeMigration(result)
	}
}

// awaitWatcher waits for those who watched a migration that is over, but not for libvirtd to answer them: it may not,
// as long as virt-handler does not hear that the migration is over, and close its connections.
func (g *guest) awaitWatcher(watcher *sync.WaitGroup) {
	gone := make(chan struct{})
	go func() {
		watcher.Wait()
		close(gone)
	}()
	patience := time.NewTimer(lookPatience)
	defer patience.Stop()
	select {
	case <-gone:
	case <-patience.C:
		g.log.Warn("libvirtd does not answer, though the migration is over")
	}
}

// noteStop notes that the guest stands still from now on, until it runs at the target.
func (g *guest) noteStop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Now().Leaving() && g.migration.stopped.IsZero() {
		g.migration.stopped = time.Now()
	}
}

// ownAccount returns what the launcher knows by itself of a migration whose guest has just begun to run at the target.
func (g *guest) ownAccount() hypervisor.Migrated {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := hypervisor.Migrated{Progress: g.migration.account}
	if !g.migration.stopped.IsZero() {
		own.Downtime = time.Since(g.migration.stopped).Round(time.Millisecond)
	}
	return own
}

// tidyPatience is the time that libvirt has to end its QEMU and its connection to the other libvirtd once the guest has
// moved.
const tidyPatience = time.Second

// awaitTidied waits until libvirt has done with a migration.
func (g *guest) awaitTidied() {
	g.mu.Lock()
	over := g.migration.over
	g.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-time.After(tidyPatience):
	}
}

// completeMigration records that the guest has moved, unless it has been recorded already.
func (g *guest) completeMigration(result hypervisor.Migrated) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := g.life.Now()
	if from == lifecycle.MigratedAway {
		return
	}
	g.applyLocked(lifecycle.CompleteMigration)
	if g.life.Now() != lifecycle.MigratedAway {
		return // the launcher ends in the middle of a handoff
	}
	g.updateLocked(func(s *pb.GuestState) {
		s.Migration.Phase, s.Migration.EndedAt = pb.MigrationPhase_MIGRATION_PHASE_COMPLETED, timestamppb.Now()
		if result.Progress != nil {
			throttle := s.Migration.Progress.GetThrottle()
			s.Migration.Progress = message(*result.Progress)
			s.Migration.Progress.Throttle = max(s.Migration.Progress.Throttle, throttle)
		}
		if result.Downtime > 0 {
			s.Migration.Downtime = durationpb.New(result.Downtime)
		}
	})
	g.reportEndLocked(from, hypervisor.End{Outcome: hypervisor.Moved, Reason: "migrated"})
}
