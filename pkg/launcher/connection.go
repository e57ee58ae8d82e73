package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
)

// connection waits for a connection to the daemon.
func (g *guest) connection(ctx context.Context) (hypervisor.Connection, error) {
	for {
		g.mu.Lock()
		conn, linked := g.conn, g.linked
		g.mu.Unlock()
		if conn != nil {
			return conn, nil
		}
		select {
		case <-linked:
		case <-ctx.Done():
			return nil, fmt.Errorf("libvirtd does not answer: %w", ctx.Err())
		}
	}
}

// redial is the pause after a failed attempt to connect to a daemon that answers.
const redial = 50 * time.Millisecond

// follow keeps a connection to the daemon and records what it reports, until ctx ends.
func (g *guest) follow(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := g.dial(ctx)
		if err != nil {
			if ctx.Err() == nil {
				g.log.Warn("cannot connect to libvirtd", "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(redial):
			}
			continue
		}
		g.use(conn)
		g.listen(ctx, conn)
		g.drop()
		if err := conn.Close(); err != nil {
			g.log.Warn("cannot close the connection to libvirtd", "err", err)
		}
	}
}

func (g *guest) use(conn hypervisor.Connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conn, g.inherited = conn, g.life.Now().HasDomain()
	close(g.linked)
}

func (g *guest) drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conn = nil
	g.linked = make(chan struct{})
}

// relook is the pause between looks for the QEMU of a guest that was here before the connection.
const relook = 500 * time.Millisecond

// listen follows one connection until it is lost. It begins with a look, because much may have
// happened while there was none. Later a domain that is missing means nothing: its end is an event. There is no such
// event where QEMU ends before a new daemon has reached it: until then the daemon shows the domain, and then it drops
// it without a word. So a guest that was here before the connection is missed once its QEMU is gone.
func (g *guest) listen(ctx context.Context, conn hypervisor.Connection) {
	g.refresh(ctx, conn, true)
	var ticks <-chan time.Time
	if g.hasInherited() {
		ticker := time.NewTicker(relook)
		defer ticker.Stop()
		ticks = ticker.C
	}
	var late *hypervisor.End // came before the event of the domain's start
	var unheard <-chan time.Time
	for {
		select {
		case <-unheard:
			unheard = nil
			if g.stillStarting() {
				unheard = time.After(relook)
				continue
			}
			g.hear(conn)
			g.end(ctx, conn, *late)
		case <-ticks:
			if g.lostQEMU() {
				g.missed(ctx, conn)
			}
		case e, ok := <-conn.Events():
			if e.StoppedToMove {
				g.noteStop()
			}
			if e.Started {
				g.hear(conn)
				unheard = nil
			}
			switch {
			case !ok:
				return
			case e.End != nil && g.end(ctx, conn, *e.End):
			default:
				g.refresh(ctx, conn, false)
				if e.End != nil && g.waitsToHear(conn) {
					late, unheard = e.End, time.After(relook)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// hasInherited reports whether the guest was here before the connection, and has not ended.
func (g *guest) hasInherited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inherited && !g.life.Now().Final()
}

// lostQEMU reports whether such a guest has no QEMU any more.
func (g *guest) lostQEMU() bool {
	if !g.hasInherited() {
		return false
	}
	qemu, err := g.qemu()
	if err != nil {
		return errors.Is(err, errQEMUEnded) || errors.Is(err, fs.ErrNotExist)
	}
	if err := qemu.Release(); err != nil {
		g.log.Warn("cannot let go of QEMU's process", "err", err)
	}
	return false
}

// missed ends the guest if the daemon does not have it any more.
func (g *guest) missed(ctx context.Context, conn hypervisor.Connection) {
	_, err := conn.Domain(ctx)
	if !errors.Is(err, hypervisor.ErrNoDomain) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endUnseenLocked()
}

// end takes an end that the daemon reported, and reports whether the guest has ended. It has not while it is there: a
// domain that could not be created ends, too, and a domain that is created at once after it may exist, or be about to,
// before the report of that end comes. Nor has it where the guest may be gone already, but its start is still to be
// reported: the daemon reports in order, so such an end is of a domain before it.
func (g *guest) end(ctx context.Context, conn hypervisor.Connection, end hypervisor.End) bool {
	take := func(start int) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.starts != start {
			return false
		}
		g.endLocked(end)
		return true
	}
	for {
		g.mu.Lock()
		start := g.starts
		g.mu.Unlock()
		if g.waitsToHear(conn) {
			return false
		}
		if _, err := conn.Domain(ctx); err == nil {
			return false
		}
		if take(start) {
			return true
		}
	}
}

// hear records that the start of the domain was reported over the connection, or that this is not waited for any more.
func (g *guest) hear(conn hypervisor.Connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unheard == conn {
		g.unheard = nil
	}
}

// waitsToHear reports whether a domain is created over the connection, or was, whose start is still to be reported.
func (g *guest) waitsToHear(conn hypervisor.Connection) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unheard == conn
}

// stillStarting reports whether the domain is being created.
func (g *guest) stillStarting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.Now() == lifecycle.Starting
}
