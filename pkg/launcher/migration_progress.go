package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
)

const (
	// lookEvery is the pause between two accounts of a migration, and reportEvery between two that are reported.
	lookEvery   = 100 * time.Millisecond
	reportEvery = time.Second
)

// watchMove follows a migration until ctx ends: it reports how far it is, and sees to its end within its limits.
func (g *guest) watchMove(ctx context.Context, l limits) {
	m := &watched{guest: g, limits: l, began: time.Now(), downtime: downtime{limit: firstDowntime}}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		conn, err := g.connection(ctx)
		if err != nil {
			return
		}
		select {
		case g.looking <- struct{}{}:
		default: // the guest is being given up
			continue
		}
		late := time.AfterFunc(silencePatience, g.cutMove)
		account, err := conn.MigrationProgress(ctx)
		<-g.looking
		if err != nil && !errors.Is(err, hypervisor.ErrNoMigration) && !errors.Is(err, hypervisor.ErrNoDomain) &&
			!g.isElsewhere() {
			g.log.Info("how far the migration is is not known", "err", err)
		}
		if err == nil {
			m.take(ctx, conn, account)
		}
		late.Stop()
	}
}

// watched holds what a migration's watcher remembers.
type watched struct {
	*guest
	seen     pace
	downtime downtime
	limits   limits
	began    time.Time
	reported time.Time
}

// take reports an account of the migration, and does what follows from it.
func (m *watched) take(ctx context.Context, conn hypervisor.Connection, account hypervisor.Progress) {
	m.mu.Lock()
	m.migration.account = &account
	m.mu.Unlock()
	if now := time.Now(); account.DataTotal > 0 && now.Sub(m.reported) >= reportEvery {
		m.reported = now
		m.reportProgress(account)
	}
	if m.seen.mode == preCopy && m.downtime.raise(account) {
		if err := conn.SetMaxDowntime(ctx, m.downtime.limit); err != nil && !errors.Is(err, hypervisor.ErrNoDomain) {
			m.log.Warn("cannot give the migration more time to stop the guest", "err", err)
		}
	}
	switch verdict, why := m.seen.judge(m.limits, time.Since(m.began), account); verdict {
	case switchToPostCopy:
		m.seen.mode = m.hurry(postCopy, m.seen.mode, func() error { return conn.StartPostCopy(ctx) })
		if m.seen.mode != postCopy {
			m.limits.postCopy = false // it stands still instead
		}
	case standStill:
		m.seen.mode = m.hurry(stopped, m.seen.mode, func() error { return conn.Suspend(ctx) })
	case giveUp:
		m.giveUpMove(ctx, conn, why, m.seen.mode)
	}
}

// silencePatience is the time for which libvirtd may report nothing on a migration until its connections are cut: QEMU
// answers nobody while it waits for one of them.
const silencePatience = 30 * time.Second

// cutMove gives up a migration on which libvirtd reports nothing any more, and has virt-handler cut its connections. A
// migration by post-copy is left alone: that would end its guest; so is one in the handoff, whose QEMU stands still.
func (g *guest) cutMove() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Now() != lifecycle.Migrating || g.state.Migration.Mode == postCopy {
		return
	}
	if g.migration.gaveUp == "" {
		g.migration.gaveUp = fmt.Sprintf("libvirtd or QEMU on the source node did not answer for %s", silencePatience)
	}
	g.log.Warn("the migration's connections are to be cut", "reason", g.migration.gaveUp)
	g.updateLocked(func(s *pb.GuestState) { s.Migration.Cut = true })
}

// lookPatience is the time for which a handoff waits for an account of a migration.
const lookPatience = 5 * time.Second

// stopLooking waits for the account that is being asked for, and keeps the next from being until looking is emptied.
func (g *guest) stopLooking(ctx context.Context) error {
	timeout := time.NewTimer(lookPatience)
	defer timeout.Stop()
	select {
	case g.looking <- struct{}{}:
		return nil
	case <-timeout.C:
		return errors.New("libvirtd does not say how far the migration is")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hurry changes how the guest moves, and gives how it does then.
func (g *guest) hurry(to, was pb.MigrationMode, change func() error) pb.MigrationMode {
	g.log.Info("the migration's time is over", "mode", to.String())
	// First, since the daemon reports what follows from the change.
	g.setMode(to)
	if err := change(); err != nil {
		g.log.Warn("cannot change how the guest moves", "mode", to.String(), "err", err)
		g.setMode(was)
		return was
	}
	return to
}

// updateMigration changes what is reported of the migration under way, if there is one.
func (g *guest) updateMigration(f func(*pb.Migration)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Now().Leaving() {
		g.updateLocked(func(s *pb.GuestState) { f(s.Migration) })
	}
}

func (g *guest) setMode(mode pb.MigrationMode) {
	g.updateMigration(func(m *pb.Migration) { m.Mode = mode })
}

// giveUpMove ends a migration for a reason of ours. One by post-copy cannot be ended but with its guest.
func (g *guest) giveUpMove(ctx context.Context, conn hypervisor.Connection, why string, mode pb.MigrationMode) {
	g.mu.Lock()
	g.migration.gaveUp = why
	g.mu.Unlock()
	end := conn.AbortMigration
	if mode == postCopy {
		end = conn.Destroy
	}
	if err := end(ctx); err != nil && !errors.Is(err, hypervisor.ErrNoDomain) {
		g.log.Warn("cannot end the migration", "why", why, "err", err)
	}
}

func (g *guest) reportProgress(p hypervisor.Progress) {
	g.updateMigration(func(m *pb.Migration) { m.Progress = message(p) })
}

// message returns an account for virt-handler.
func message(p hypervisor.Progress) *pb.MigrationProgress {
	return &pb.MigrationProgress{
		Elapsed:   durationpb.New(p.Elapsed),
		DataTotal: p.DataTotal, DataProcessed: p.DataProcessed, DataRemaining: p.DataRemaining,
		MemoryRemaining: p.MemoryRemaining, DiskRemaining: p.DiskRemaining,
		Bandwidth: p.Bandwidth, DirtyRate: p.DirtyRate, Throttle: uint32(min(p.Throttle, 100)), Iteration: p.Iteration,
		ExpectedDowntime: durationpb.New(p.ExpectedDowntime),
	}
}

// limitsOf reads a request's.
func limitsOf(l *pb.MigrationLimits) limits {
	return limits{
		perGiB: l.GetCompletionTimeoutPerGib().AsDuration(), progress: l.GetProgressTimeout().AsDuration(),
		postCopy: l.GetPostCopy(), disruption: l.GetWorkloadDisruption(),
	}
}
