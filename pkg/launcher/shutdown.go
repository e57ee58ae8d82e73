package launcher

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/names"
)

// pressInterval is the interval at which the power button is pressed: a guest that has not booted far enough does not
// notice it, and one that is shutting down already ignores it.
const pressInterval = 2 * time.Second

// retry is the pause after libvirt refused to power the guest off.
const retry = 200 * time.Millisecond

// shutdown begins to shut the guest down, or shortens the time that it has left.
func (g *guest) shutdown(grace time.Duration) {
	at := time.Now().Add(max(0, grace))
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopAt.IsZero() && !at.Before(g.stopAt) {
		return
	}
	g.stopAt = at
	from := g.life.Now()
	g.applyLocked(lifecycle.Shutdown)
	switch to := g.life.Now(); {
	case from.Final():
		return
	case to.Final():
		// There is nothing to shut down, and nothing will be started any more.
		g.reportEndLocked(from, hypervisor.End{Outcome: hypervisor.Shutdown, Reason: names.ReasonNeverRan})
		return
	case to.HasGuest():
		g.updateLocked(func(s *pb.GuestState) { s.Lifecycle = pb.Lifecycle_LIFECYCLE_SHUTTING_DOWN })
	}
	select {
	case g.stopping <- struct{}{}:
	default:
	}
}

// terminate notes that the pod is being ended, which is then why the guest ends.
func (g *guest) terminate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.terminated = true
}

// shuttingDown reports whether shutdown was called.
func (g *guest) shuttingDown() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.stopAt.IsZero()
}

// stop carries shutdowns out: it presses the power button until the time is over, and then pulls the
// plug. It returns when the guest is gone or ctx ends.
func (g *guest) stop(ctx context.Context) {
	select {
	case <-g.stopping:
	case <-g.final:
		return
	case <-ctx.Done():
		return
	}
	for {
		g.mu.Lock()
		left := time.Until(g.stopAt)
		g.mu.Unlock()
		pause := min(pressInterval, left)
		if left > 0 {
			g.press(ctx)
		} else {
			g.powerOff(ctx)
			pause = retry
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-g.stopping:
		case <-g.final:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// press presses the power button. A guest that is paused would not notice, so it runs on.
func (g *guest) press(ctx context.Context) {
	if g.handing() {
		return // it may run at the other side
	}
	conn, err := g.connection(ctx)
	if err != nil {
		return
	}
	if g.leaving() {
		// A guest on its way takes no commands.
		if err := conn.AbortMigration(ctx); err != nil {
			g.log.Warn("cannot cancel the migration to shut the guest down", "err", err)
		}
	}
	if d, err := conn.Domain(ctx); err == nil && d.Run == hypervisor.Paused {
		if err := conn.Resume(ctx); err != nil {
			g.log.Warn("cannot resume the guest to shut it down", "err", err)
		}
	}
	if err := conn.PowerButton(ctx); err != nil && !errors.Is(err, hypervisor.ErrNoDomain) {
		g.log.Warn("cannot press the power button", "err", err)
	}
}

// powerOff pulls the plug. QEMU hears it from the launcher first: libvirtd sends the same signal, but looks only every
// 200 ms whether QEMU has ended, and does not if it has before. It is libvirtd that ends a QEMU which does not heed it.
func (g *guest) powerOff(ctx context.Context) {
	if g.decide(wordRunning) {
		return // whether it runs at the other side or not, it is to end here
	}
	conn, err := g.connection(ctx)
	if err != nil {
		return
	}
	g.mu.Lock()
	g.unplugged = true
	g.mu.Unlock()
	g.endQEMU(ctx)
	if err := conn.Destroy(ctx); err != nil && !errors.Is(err, hypervisor.ErrNoDomain) {
		g.log.Warn("cannot power the guest off", "err", err)
	}
}

// How long a QEMU is waited for that was told to end, and how often one looks whether it has.
const (
	heed     = 500 * time.Millisecond
	heedLook = 2 * time.Millisecond
)

// endQEMU tells the guest's QEMU to end, as libvirtd does (SIGTERM: it writes what it holds of its disks), and waits
// until it has, for a while.
func (g *guest) endQEMU(ctx context.Context) {
	qemu, err := g.qemu()
	if err != nil {
		g.log.Debug("QEMU is left to libvirtd", "err", err)
		return
	}
	defer func() {
		if err := qemu.Release(); err != nil {
			g.log.Debug("QEMU's process was not let go", "err", err)
		}
	}()
	if err := qemu.Signal(syscall.SIGTERM); err != nil {
		g.log.Debug("QEMU was not told to end", "err", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, heed)
	defer cancel()
	look := time.NewTicker(heedLook)
	defer look.Stop()
	for qemu.Signal(syscall.Signal(0)) == nil {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}
