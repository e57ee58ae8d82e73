package launcher

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
)

const (
	// handoffPatience is the time that the other launcher may take to start the guest until that is reported: the guest
	// shows as paused then, and virt-handler looks at what became of the other one.
	handoffPatience = time.Second
	// handoffRedial is the pause between two connections to it.
	handoffRedial = 200 * time.Millisecond
)

// handoff is a guest that the other launcher may start. Its QEMU stands still here, complete: a process that is stopped
// runs nothing, whatever libvirt answers it meanwhile.
type handoff struct {
	qemu process
	// paused says that it was paused by its user and is to stay so.
	paused bool
}

// handOff has the other launcher start the guest. It returns when that one reports that the guest runs, and has ended
// the QEMU here then; or when the target is known to have ended without having run it, and the guest goes on here. As
// long as it is not known which, the guest stands still.
func (g *guest) handOff(ctx context.Context, l *link, h handoff, socket string) {
	defer func() { _ = h.qemu.Release() }()
	if err := g.note(handedOver); err != nil {
		g.log.Warn("should the launcher be killed now, nobody will know that the guest was handed over", "err", err)
	}
	answer := wordRun
	if h.paused {
		answer = wordStay
	}
	late := time.AfterFunc(handoffPatience, func() { g.reportHandoff(true) })
	word := g.untilKnown(ctx, l.conn, answer, socket)
	late.Stop()
	switch word {
	case wordRunning:
		if err := h.qemu.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			g.log.Warn("the guest's old QEMU is stopped, and cannot be ended", "err", err)
		}
		moved := g.ownAccount()
		g.endHandoff(true)
		l.gate.open()
		// libvirt here still tidies up: it looks for the end of its QEMU every 200 ms.
		g.completeMigration(moved)
	case wordDead:
		g.log.Warn("the guest goes on here", "reason", errNeverRan)
		if err := g.note(termination.Message{}); err != nil {
			g.log.Warn("the termination message that was written ahead cannot be taken back", "err", err)
		}
		g.endHandoff(false)
		// libvirt gets what it waits for, an error or the end of the connection, before the guest can move again.
		if err := h.qemu.Signal(syscall.SIGCONT); err != nil {
			g.log.Warn("the guest cannot go on", "err", err)
		}
		l.gate.shut()
	}
}

// untilKnown asks the other launcher to start the guest until it answers what became of it: wordRunning, or wordDead;
// "" when ctx ends before. It asks again over another connection whenever one is lost, since it cannot know what was
// heard.
func (g *guest) untilKnown(ctx context.Context, conn net.Conn, answer, socket string) string {
	ready := true // the first connection has said so
	for {
		if conn != nil {
			words := make(chan string, 1)
			go func() { words <- converse(conn, answer, ready) }()
			select {
			case word := <-words:
				if word != "" {
					return word
				}
			case word := <-g.decided:
				conn.Close()
				<-words
				return word
			case <-ctx.Done():
				conn.Close()
				<-words
				return ""
			}
			conn.Close()
		}
		select {
		case <-time.After(handoffRedial):
		case word := <-g.decided:
			return word
		case <-ctx.Done():
			return ""
		}
		next, err := g.call(ctx, socket)
		if err != nil {
			conn = nil
			continue
		}
		conn, ready = next, false
	}
}

// converse asks the other launcher to start the guest once it has said that the guest is there, and gives what it says
// then; empty when the connection is lost.
func converse(conn net.Conn, answer string, ready bool) string {
	for {
		if ready {
			if _, err := io.WriteString(conn, answer+"\n"); err != nil {
				return ""
			}
		}
		switch word, err := readWord(conn); {
		case err != nil:
			return ""
		case word == wordRunning, word == wordDead:
			return word
		case word != wordArrived || ready:
			return ""
		}
		ready = true
	}
}

// reportHandoff reports to virt-handler that the guest stands still because the target has not confirmed yet that it
// runs, or no longer does.
func (g *guest) reportHandoff(waits bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if waits && g.life.Now() != lifecycle.HandingOver {
		return
	}
	g.updateLocked(func(s *pb.GuestState) {
		if waits {
			s.Lifecycle, s.Reason = pb.Lifecycle_LIFECYCLE_PAUSED, names.ReasonHandoff
		} else if s.Reason == names.ReasonHandoff {
			s.Lifecycle, s.Reason = pb.Lifecycle_LIFECYCLE_RUNNING, ""
			if g.migration.paused {
				s.Lifecycle = pb.Lifecycle_LIFECYCLE_PAUSED
			}
		}
	})
}

// endHandoff notes how it ended.
func (g *guest) endHandoff(moved bool) {
	g.mu.Lock()
	if moved {
		g.applyLocked(lifecycle.FinishHandoff)
	} else {
		g.applyLocked(lifecycle.TakeBack)
		g.migration.gaveUp = errNeverRan
	}
	known := g.migration.handedOver
	g.mu.Unlock()
	g.reportHandoff(false)
	<-g.looking
	close(known)
}

// awaitHandoff waits until a handoff under way is over and it is known where the guest is; false when ctx ended before.
func (g *guest) awaitHandoff(ctx context.Context) bool {
	g.mu.Lock()
	handing, known := g.life.Now() == lifecycle.HandingOver, g.migration.handedOver
	g.mu.Unlock()
	if !handing {
		return true
	}
	select {
	case <-known:
		return true
	case <-ctx.Done():
		return false
	}
}

// handing reports whether the other launcher may start the guest just now.
func (g *guest) handing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.Now() == lifecycle.HandingOver
}

// decide settles a handoff under way by what is known from elsewhere: wordDead, the other launcher has ended without
// having run the guest, which goes on here; wordRunning, the guest has left here for good. It reports whether a handoff
// is under way.
func (g *guest) decide(word string) bool {
	if !g.handing() {
		return false
	}
	select {
	case g.decided <- word:
	default: // said before
	}
	return true
}
