package launcher

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
)

// takeOverPause is the pause between attempts to start a guest that was received.
const takeOverPause = 50 * time.Millisecond

// startTries is the number of attempts to start a received guest.
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
		ended, err := g.beforeStart(ctx, conn)
		unknown := errors.Is(err, errQEMUUnknown) && tries < startTries
		switch {
		case ended:
			return nil
		case unknown: // libvirtd is about to say that it has ended
		case err != nil:
			return err
		case !paused:
			err = conn.Resume(ctx)
		}
		if err == nil || errors.Is(err, hypervisor.ErrNoDomain) {
			g.refresh(ctx, conn, false)
			return nil
		}
		if d, look := conn.Domain(ctx); !unknown && look == nil &&
			(d.Run == hypervisor.Running || tries == startTries) {
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

// errQEMUUnknown says that it is not known whether QEMU lives.
var errQEMUUnknown = status.Error(codes.Unavailable, "libvirtd does not know the guest's QEMU any more")

// qemuEnded reports whether the guest's QEMU has ended, whether libvirtd has noticed or not. libvirtd that has just
// noticed removes the file that names the process before it drops the domain: that is errQEMUUnknown.
func (g *guest) qemuEnded() (bool, error) {
	qemu, err := g.qemu()
	switch {
	case errors.Is(err, errQEMUEnded):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, errQEMUUnknown
	case err != nil:
		g.log.Debug("it is not known whether QEMU lives", "err", err)
		return false, nil
	}
	if err := qemu.Release(); err != nil {
		g.log.Debug("QEMU's process was not let go", "err", err)
	}
	return false, nil
}

// beforeStart records that the guest may have run here from now on, or reports that it has ended: a reader of its
// termination message must not take an older memory for the guest's once this one may have written to the disks. That
// QEMU lives is checked last, since a launcher may be stopped for long in here; when it does not, the guest never ran.
func (g *guest) beforeStart(ctx context.Context, conn hypervisor.Connection) (ended bool, err error) {
	if _, err := conn.Domain(ctx); errors.Is(err, hypervisor.ErrNoDomain) {
		return true, nil
	}
	if ended, err := g.qemuEnded(); err != nil || ended {
		return ended, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Now() != lifecycle.Released {
		return g.life.Now().Final(), nil
	}
	if err := g.note(termination.Message{}); err != nil {
		return false, status.Error(codes.Unavailable, err.Error())
	}
	if ended, err := g.qemuEnded(); err != nil || ended {
		if err := g.note(neverRan); err != nil {
			g.log.Warn("should the launcher be killed now, nobody will know that the guest has not run "+
				"here", "err", err)
		}
		return ended, err
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
