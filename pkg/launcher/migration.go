package launcher

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/virtkit/virtkit/pkg/disk"
	"github.com/virtkit/virtkit/pkg/domain"
	"github.com/virtkit/virtkit/pkg/hotplug"
	"github.com/virtkit/virtkit/pkg/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/credentials"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// move is one migration to make.
type move struct {
	uid string
	to  hypervisor.Migration
	// handover is the socket behind which the other launcher says that the guest is there.
	handover string
	// seeds is the socket behind which it takes images.
	seeds  string
	limits limits
	// abort has a value once libvirt was asked in vain to end the migration.
	abort chan struct{}
}

// PrepareMigrationTarget implements the contract. What it made once is not made again: the guest may be
// on its way into it.
func (s *service) PrepareMigrationTarget(_ context.Context, req *pb.PrepareMigrationTargetRequest) (*pb.PrepareMigrationTargetResponse, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	ctx, cancel := context.WithTimeout(s.life, startTimeout)
	defer cancel()
	if err := s.expect(ctx, req); err != nil {
		s.options.Log.Warn("cannot prepare for the guest", "err", err)
		return nil, err
	}
	return &pb.PrepareMigrationTargetResponse{State: s.guest.snapshot()}, nil
}

func (s *service) expect(ctx context.Context, req *pb.PrepareMigrationTargetRequest) error {
	vmi, plan, err := s.read(&pb.StartRequest{VmiJson: req.VmiJson, NetworkPlanJson: req.NetworkPlanJson})
	if err != nil {
		return err
	}
	if s.guest.shuttingDown() || isFinal(s.guest.snapshot().Lifecycle) {
		return status.Error(codes.FailedPrecondition, "the launcher is shutting down")
	}
	if s.guest.exists() || s.guest.expected() {
		return s.serveDHCP(plan)
	}
	boot := *vmi
	boot.Spec = *disk.WithoutSeeds(hotplug.Without(&vmi.Spec)) // those come
	images, err := disk.Prepare(ctx, &boot, s.options.Disks, s.run)
	if err != nil {
		return startError(vmi, images, err)
	}
	if err := sameImages(vmi, images); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	volumes, _ := hotplug.Moving(vmi)
	for _, name := range volumes {
		if hotplug.Volume(&vmi.Spec, name) == nil {
			continue // asked to be taken away once the guest is here
		}
		if images[name], err = disk.PrepareHotplugged(ctx, vmi, name, s.options.Disks, s.run); err != nil {
			return startError(vmi, images, err)
		}
	}
	if err := s.serveDHCP(plan); err != nil {
		return err
	}
	if _, err := s.guest.connection(ctx); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if _, err := s.nvram(vmi); err != nil { // its directory
		return startError(vmi, images, err)
	}
	if err := s.tpm.expect(vmi); err != nil {
		return startError(vmi, images, err)
	}
	s.credentials.keep(credentials.NewPlan(&vmi.Spec))
	listener, err := s.listenForArrival()
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	seeds, err := s.expectSeeds(vmi)
	if err != nil {
		listener.Close()
		return status.Error(codes.Internal, err.Error())
	}
	s.arriving <- arrival{devices: exclusiveDevices(&vmi.Spec, images), listener: listener, seeds: seeds}
	s.guest.expect(domain.Targets(hotplug.Without(&vmi.Spec)), checksums(images))
	return nil
}

// Migrate implements the contract.
func (s *service) Migrate(ctx context.Context, req *pb.MigrateRequest) (*pb.MigrateResponse, error) {
	if req.Uid == "" {
		return nil, status.Error(codes.InvalidArgument, "uid: is empty")
	}
	in := func(name string) string { return filepath.Join(s.options.RunDir, name) }
	l := req.Limits
	return &pb.MigrateResponse{}, s.guest.leave(move{uid: req.Uid, handover: in(names.SocketMigrationHandover), seeds: in(names.SocketMigrationSeeds), limits: limitsOf(l), to: hypervisor.Migration{
		Peer:      in(names.SocketMigrationPeer),
		Memory:    in(names.SocketMigrationMemory),
		Disks:     in(names.SocketMigrationDisks),
		CopyBelow: s.options.Disks.Disks,
		// With post-copy it has to run there before all of it is: libvirt decides where.
		Held:         !l.GetPostCopy(),
		Bandwidth:    l.GetBandwidth(),
		AutoConverge: l.GetAutoConverge(), PostCopy: l.GetPostCopy(), Unsafe: l.GetUnsafe(),
		Connections: int(l.GetConnections()),
	}})
}

// CancelMigration implements the contract.
func (s *service) CancelMigration(ctx context.Context, req *pb.CancelMigrationRequest) (*pb.CancelMigrationResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	if err := s.guest.stay(ctx, req.Uid); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &pb.CancelMigrationResponse{}, nil
}

// holdPause is the pause between attempts to take the devices of a guest that has arrived.
const holdPause = 500 * time.Millisecond

// arrival is a guest that is to come.
type arrival struct {
	// devices are its block devices.
	devices  []string
	listener net.Listener
	// seeds is where its images come.
	seeds net.Listener
}

// holdArrived takes the block devices of a guest that arrives, as Start does, once it runs here and the
// launcher that it left has let them go. Until then it answers that launcher.
func (s *service) holdArrived(ctx context.Context) {
	var devices []string
	select {
	case a := <-s.arriving:
		devices = a.devices
		answering := make(chan struct{})
		go func() {
			defer close(answering)
			s.serveArrival(ctx, a.listener)
		}()
		defer func() {
			// Nothing comes any more. virt-handler may have said that the guest was let go, so nobody need have called.
			a.seeds.Close()
			a.listener.Close()
			<-answering
		}()
	case <-ctx.Done():
		return
	}
	for state, changed := s.guest.watch(); state.Lifecycle == pb.Lifecycle_LIFECYCLE_NONE; state, changed = s.guest.watch() {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	for {
		s.starting.Lock()
		err := s.devices.hold(devices)
		s.starting.Unlock()
		var locked *hypervisor.LockedError
		if !errors.As(err, &locked) {
			if err != nil {
				s.options.Log.Warn("cannot keep others from the guest's devices", "err", err)
			}
			return
		}
		select {
		case <-time.After(holdPause):
		case <-ctx.Done():
			return
		}
	}
}

// expect says that the guest will arrive here; targets are its disks' names, images its container disks' checksums.
func (g *guest) expect(targets map[string]string, images map[string]uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.incoming = true
	g.updateLocked(func(s *pb.GuestState) { s.VolumeTargets, s.ImageChecksums = targets, images })
}

func (g *guest) expected() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.incoming
}

// leave begins a migration.
func (g *guest) leave(m move) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.state.Migration.GetUid() == m.uid:
		return nil
	case !g.created || isFinal(g.state.Lifecycle):
		return status.Error(codes.FailedPrecondition, "the guest does not run")
	case !g.stopAt.IsZero():
		return status.Error(codes.FailedPrecondition, "the guest is shutting down")
	case g.migrating:
		return status.Error(codes.FailedPrecondition, "another migration of the guest is under way")
	case g.state.FsfreezeStatus == frozen:
		// The launcher that it goes to would not know when to let it go.
		return status.Error(codes.FailedPrecondition, "the guest's file systems are frozen; unfreeze them first, or wait until they are unfrozen by themselves")
	}
	g.migrating, g.cancelled, g.committed, g.early, g.gaveUp = true, false, false, nil, ""
	g.leftAsPaused = g.state.Lifecycle == pb.Lifecycle_LIFECYCLE_PAUSED
	m.abort = make(chan struct{}, 1)
	g.abort = m.abort
	g.moves <- m // taken or empty, since no other is under way
	g.updateLocked(func(s *pb.GuestState) {
		s.Migration = &pb.Migration{Uid: m.uid, Phase: pb.MigrationPhase_MIGRATION_PHASE_RUNNING, StartedAt: timestamppb.Now()}
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
	conn, err := g.connection(ctx)
	var result hypervisor.Migrated
	var l *link
	if err == nil {
		l, err = g.reach(ctx, m)
	}
	if err == nil {
		err = g.giveSeeds(ctx, m)
	}
	if err == nil && g.stays() {
		err = errCancelled
	}
	if err == nil {
		watching, done := context.WithCancel(ctx)
		var watcher sync.WaitGroup
		watcher.Go(func() { insist(watching, conn, m.abort) })
		watcher.Go(func() { g.watchMove(watching, m.limits) })
		result, err = conn.Migrate(ctx, m.to)
		done()
		watcher.Wait()
	}
	if err != nil && !g.gone() {
		g.log.Warn("migration failed", "uid", m.uid, "err", err)
		err = g.stayed(ctx, g.reasonOf(err))
	} else {
		err = nil
	}
	if l != nil {
		// Before the guest's end is known, since the launcher ends with it.
		l.close(err == nil)
	}
	if err == nil {
		g.left(result)
	}
}

// gone says that the guest was given up here.
func (g *guest) gone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.committed
}

// left records that the guest has moved.
func (g *guest) left(result hypervisor.Migrated) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.migrating = false
	g.updateLocked(func(s *pb.GuestState) {
		s.Migration = proto.CloneOf(s.Migration)
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
	g.finishLocked(hypervisor.End{Outcome: hypervisor.Moved, Reason: "migrated"})
}

// reasonOf is why a migration failed: what we ended it for, else what the daemon says.
func (g *guest) reasonOf(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gaveUp != "" && !g.cancelled {
		return errors.New(g.gaveUp)
	}
	return err
}

// undo takes back what was done to the guest so that its migration ends.
func (g *guest) undo(ctx context.Context, conn hypervisor.Connection) {
	if g.snapshot().Migration.GetMode() != stopped || g.leftPaused() {
		return
	}
	if err := conn.Resume(ctx); err != nil && !errors.Is(err, hypervisor.ErrNoDomain) {
		g.log.Warn("what was done to the guest for its migration is not undone", "err", err)
	}
}

// stayed finds out what became of the guest after its migration seemed to fail: nil when it has moved after all. With the
// connection to the daemon its answer may have been lost, so the daemon has the last word.
func (g *guest) stayed(ctx context.Context, cause error) error {
	for {
		conn, err := g.connection(ctx)
		if err != nil {
			return cause // the launcher ends
		}
		d, err := conn.Domain(ctx)
		// How a guest that is gone has ended is on its way: as an event, or with the first look of a new connection.
		if err == nil || g.gone() || errors.Is(err, hypervisor.ErrNoDomain) && g.endKnown() {
			if g.settle(cause, err == nil && d.Left()) {
				return nil
			}
			if err == nil {
				if g.torn() {
					g.endTorn(ctx)
					return cause
				}
				g.undo(ctx, conn)
				g.goOn(ctx, d)
			}
			return cause
		}
		select {
		case <-time.After(redial):
		case <-ctx.Done():
			return cause
		}
	}
}

// goOn lets a guest go on that a daemon has left standing still, having given it up to nobody: one that was restarted in
// the middle of the hand-over does not know whether it may; and one may not have been able to, as long as the QEMU at the
// other side holds the locks of the disks. That one's pod is deleted once the migration is known to have failed.
func (g *guest) goOn(ctx context.Context, d hypervisor.Domain) {
	for tries := 0; d.Stopped(); tries++ {
		conn, err := g.connection(ctx)
		if err != nil {
			return
		}
		if err = conn.Resume(ctx); err == nil {
			break
		}
		if tries == 0 {
			g.log.Warn("the guest stays, but cannot go on yet", "err", err)
		}
		select {
		case <-time.After(redial):
		case <-ctx.Done():
			return
		}
		if next, err := conn.Domain(ctx); err == nil {
			d = next
		} else if errors.Is(err, hypervisor.ErrNoDomain) {
			return
		}
	}
	if conn, err := g.connection(ctx); err == nil {
		g.refresh(ctx, conn, false)
	}
}

// torn says that the guest's parts are on both sides, and nobody brings them together.
func (g *guest) torn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tornBy != ""
}

// endTorn ends such a guest, which can run on neither side.
func (g *guest) endTorn(ctx context.Context) {
	for {
		conn, err := g.connection(ctx)
		if err != nil {
			return // the launcher ends, and QEMU with it
		}
		if err = conn.Destroy(ctx); err == nil || errors.Is(err, hypervisor.ErrNoDomain) {
			return
		}
		g.log.Warn("the guest is on two nodes, and cannot be ended here yet", "err", err)
		select {
		case <-time.After(redial):
		case <-ctx.Done():
			return
		}
	}
}

func (g *guest) endKnown() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.early != nil
}

// settle decides that the guest has not moved, and records that, or how it ended. It has moved when it was given up
// meanwhile, or when libvirt has seen it go. A guest that had left by post-copy cannot go on on either side; how it ends
// says why.
func (g *guest) settle(cause error, left bool) (moved bool) {
	g.deciding.Lock()
	defer g.deciding.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.committed || g.early != nil && g.early.Outcome == hypervisor.Moved {
		return true
	}
	g.migrating = false
	why := hypervisor.WhyStayed(cause)
	if g.early != nil {
		why = "the guest has ended"
	}
	if g.state.Migration.GetMode() == postCopy && (left || g.early != nil) {
		why = "it broke off while the guest ran on the other node and needed its memory from here (post-copy): " + hypervisor.WhyStayed(cause)
		g.tornBy = "its migration failed: " + why
	}
	g.updateLocked(func(s *pb.GuestState) {
		s.Migration = proto.CloneOf(s.Migration)
		s.Migration.EndedAt = timestamppb.Now()
		s.Migration.Phase = pb.MigrationPhase_MIGRATION_PHASE_FAILED
		s.Migration.Error, s.Migration.Cancelled = why, g.cancelled
	})
	if g.early != nil {
		g.finishLocked(*g.early)
	}
	return false
}
