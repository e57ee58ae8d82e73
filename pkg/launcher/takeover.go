package launcher

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
)

// takeOverPause is the pause between attempts to start a guest that was received.
const takeOverPause = 50 * time.Millisecond

// startTries is how often the start of a received guest is tried.
const startTries = 100

// takeOver starts a received guest, whose source has let it go; or with paused leaves it as it is.
func (g *guest) takeOver(ctx context.Context, paused bool) error {
	g.mu.Lock()
	if !g.state.Arrived {
		g.mu.Unlock()
		return status.Error(codes.FailedPrecondition, "no guest was received")
	}
	g.applyLocked(lifecycle.Release)
	g.reportNeverRanLocked()
	over := g.life.Now().HasGuest() || g.life.Now().Final()
	g.mu.Unlock()
	for tries := 1; !over; tries++ {
		conn, err := g.connection(ctx)
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		if ended, err := g.beforeStart(ctx, conn); err != nil || ended {
			return err
		}
		if !paused {
			err = conn.Resume(ctx)
		}
		if err == nil || errors.Is(err, hypervisor.ErrNoDomain) {
			g.refresh(ctx, conn, false)
			return nil
		}
		if d, look := conn.Domain(ctx); look == nil && (d.Run == hypervisor.Running || tries == startTries) {
			// One that does not start is here all the same, and shows as paused: its user may try.
			g.refresh(ctx, conn, false)
			return nil
		}
		g.log.Warn("the guest is here and cannot be started yet", "err", err)
		select {
		case <-time.After(takeOverPause):
		case <-ctx.Done():
			return status.Error(codes.Unavailable, err.Error())
		}
	}
	return nil
}

// beforeStart notes that the guest may have run here from now on, or reports that it has ended: whoever looks at its
// termination message must not take an older memory for the guest's once this one may have written to the disks.
func (g *guest) beforeStart(ctx context.Context, conn hypervisor.Connection) (ended bool, err error) {
	if _, err := conn.Domain(ctx); errors.Is(err, hypervisor.ErrNoDomain) {
		return true, nil
	}
	// libvirtd may not have noticed yet that QEMU has died.
	switch qemu, err := g.qemu(); {
	case errors.Is(err, errQEMUEnded):
		return true, nil
	case err == nil:
		if err := qemu.Release(); err != nil {
			g.log.Debug("QEMU's process was not let go", "err", err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Now() != lifecycle.Released {
		return g.life.Now().Final(), nil
	}
	if err := g.note(termination.Message{}); err != nil {
		return false, status.Error(codes.Unavailable, err.Error())
	}
	g.applyLocked(lifecycle.TakeOver)
	return false, nil
}

// mayHaveRun reports whether the guest may have run here.
func (g *guest) mayHaveRun() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.MayHaveRun()
}

func (g *guest) neverRanHere() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.NeverRan()
}
