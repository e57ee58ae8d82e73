package launcher

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// reasonOf returns why a migration failed: the reason for which we ended it, else the daemon's.
func (g *guest) reasonOf(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.migration.gaveUp != "" && !g.migration.cancelled {
		return errors.New(g.migration.gaveUp)
	}
	return err
}

// undo takes back what was done to the guest so that its migration ends.
func (g *guest) undo(ctx context.Context, conn hypervisor.Connection) {
	if g.snapshot().Migration.GetMode() != stopped || g.pausedBefore() {
		return
	}
	if err := conn.Resume(ctx); err != nil && !errors.Is(err, hypervisor.ErrNoDomain) {
		g.log.Warn("what was done to the guest for its migration is not undone", "err", err)
	}
}

// resolveFailure finds out what became of the guest after its migration seemed to fail: nil when it has moved after
// all. With the connection to the daemon its answer may have been lost, so the daemon has the last word.
func (g *guest) resolveFailure(ctx context.Context, cause error) error {
	for {
		conn, err := g.connection(ctx)
		if err != nil {
			return cause // the launcher ends
		}
		d, err := conn.Domain(ctx)
		if !g.awaitHandoff(ctx) {
			return cause // the launcher ends
		}
		// How a guest that is gone has ended is on its way: as an event, or with the first look of a new connection.
		if err == nil || g.isElsewhere() || errors.Is(err, hypervisor.ErrNoDomain) && g.endKnown() {
			switch g.settle(cause, err == nil && d.Left()) {
			case hasMoved:
				return nil
			case notKnown:
				continue
			}
			if err == nil {
				if g.postCopyFailed() {
					g.destroyHere(ctx)
					return cause
				}
				g.undo(ctx, conn)
				g.resumeHere(ctx, d)
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

// resumeHere resumes a guest that libvirtd has left stopped, and whose handoff did not complete. A libvirtd that was
// restarted in the middle of the handoff does not know whether it may resume it; and it cannot as long as the target's
// QEMU holds the locks of the disks. The target's pod is deleted once the migration is known to have failed.
func (g *guest) resumeHere(ctx context.Context, d hypervisor.Domain) {
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

// postCopyFailed reports whether parts of the guest are on both sides, for good.
func (g *guest) postCopyFailed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.Last() == lifecycle.PostCopyFailed
}

// destroyHere ends a guest whose post-copy has failed: it can run on neither side.
func (g *guest) destroyHere(ctx context.Context) {
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

// migrationEnd says what became of a guest whose migration seemed to fail.
type migrationEnd int

const (
	isHere migrationEnd = iota
	hasMoved
	// notKnown: its handoff is complete, and the other launcher has not reported yet that it runs.
	notKnown
)

// settle decides that the guest has not moved, and records that, or how it ended. It has moved when it was given up
// meanwhile, or when libvirt has seen it go. A guest that had left by post-copy cannot go on on either side; how it
// ends says why.
func (g *guest) settle(cause error, left bool) migrationEnd {
	g.deciding.Lock()
	defer g.deciding.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.life.Now() == lifecycle.HandingOver:
		return notKnown
	case g.life.Now() == lifecycle.HandedOver, g.life.Now() == lifecycle.MigratedAway,
		g.early != nil && g.early.Outcome == hypervisor.Moved:
		return hasMoved
	}
	failure, why := lifecycle.FailMigration, hypervisor.FailureReason(cause)
	if g.early != nil {
		why = migrations.GuestEnded
	}
	if g.state.Migration.GetMode() == postCopy && (left || g.early != nil) {
		why = "it broke off while the guest ran on the other node and needed its memory from here (post-copy): " +
			hypervisor.FailureReason(cause)
		failure, g.postCopyError = lifecycle.FailPostCopy, "its migration failed: "+why
	}
	g.applyLocked(failure)
	g.updateLocked(func(s *pb.GuestState) {
		s.Migration.EndedAt = timestamppb.Now()
		s.Migration.Phase = pb.MigrationPhase_MIGRATION_PHASE_FAILED
		s.Migration.Error, s.Migration.Cancelled = why, g.migration.cancelled
	})
	if g.early != nil {
		g.endLocked(*g.early)
	}
	return isHere
}
