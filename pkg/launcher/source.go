package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
)

// link is the source's end of a handoff.
type link struct {
	conn net.Conn
	// gate keeps libvirt from ending the guest here; nil where libvirt decides.
	gate *gate
	// verdict has the outcome of the migration, once.
	verdict chan bool
	done    chan struct{}
	// answered says that the target was asked to take the guest over.
	answered atomic.Bool
}

// reach connects to the other launcher and hands the guest over when it is there.
func (g *guest) reach(ctx context.Context, m *move) (*link, error) {
	conn, err := g.call(ctx, m.handoff)
	if err != nil {
		return nil, fmt.Errorf("reach the other launcher: %w", err)
	}
	l := &link{conn: conn, verdict: make(chan bool, 1), done: make(chan struct{})}
	if m.gate != "" && m.to.Held {
		listener, err := listen(m.gate)
		if err != nil {
			conn.Close()
			return nil, err
		}
		peer := m.to.Peer
		l.gate = newGate(ctx, listener, func(ctx context.Context) (net.Conn, error) { return g.call(ctx, peer) })
		m.to.Peer = m.gate
	}
	socket := m.handoff
	uid := m.uid
	go func() {
		defer close(l.done)
		g.answerTarget(ctx, l, uid, socket)
	}()
	return l, nil
}

// close writes to the target that the guest has moved, or nothing, and ends the link.
func (l *link) close(moved bool) {
	l.verdict <- moved
	// Whoever waits for a word that will not come stops; one that has come is answered within the deadline.
	if !l.answered.Load() {
		_ = l.conn.SetReadDeadline(time.Now())
	}
	_ = l.conn.SetWriteDeadline(time.Now().Add(steerTimeout))
	<-l.done
	l.gate.close()
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// receivedPatience is the time that the other launcher has to report that the guest is there, once libvirt has reported
// it. Then the guest stays: nobody was asked to start it there.
const receivedPatience = 10 * time.Second

// answerTarget answers the target: at once if the handoff can begin as soon as the guest is there, or else when it is
// known what became of the guest.
func (g *guest) answerTarget(ctx context.Context, l *link, uid, socket string) {
	defer l.conn.Close()
	heard := make(chan struct{})
	go func() {
		select {
		case <-l.gate.held():
			_ = l.conn.SetReadDeadline(time.Now().Add(receivedPatience))
		case <-heard:
		}
	}()
	word, err := readWord(l.conn)
	close(heard)
	if err == nil && word != wordArrived {
		err = fmt.Errorf("the other launcher says %q", word)
	}
	if err == nil {
		var h handoff
		if h, err = g.commit(ctx, uid); err == nil {
			l.answered.Store(true)
			g.handOff(ctx, l, h, socket)
			return
		}
	}
	g.log.Info("the guest is not handed over", "uid", uid, "err", err)
	l.gate.shut()
	gone := <-l.verdict
	paused := g.pausedBefore()
	if !gone {
		return
	}
	answer := wordRun
	if paused {
		answer = wordStay
	}
	l.answered.Store(true)
	if _, err = io.WriteString(l.conn, answer+"\n"); err == nil {
		// It answers when it has heard. Before, virt-handler must not see that the migration is over: it would cut
		// the connection with the word in it.
		err = l.conn.SetReadDeadline(time.Now().Add(farewell))
	}
	if err == nil {
		if _, err = readWord(l.conn); err == nil || errors.Is(err, io.EOF) {
			return
		}
	}
	g.log.Info("the other launcher has not confirmed that it starts the guest; "+
		"if it has not heard, virt-handler will ask it",
		"uid", uid, "err", err)
}

func (g *guest) pausedBefore() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.migration.paused
}

// endPatience is the time that libvirt may take to report the state of a stopped guest. When the word from the target
// came to libvirt as well and it is just ending the guest, it says nothing until QEMU is gone, and a stopped one does
// not obey SIGTERM: libvirt waits ten seconds before it sends SIGKILL (virProcessKillPainfully), in which the guest
// would run nowhere.
const endPatience = 250 * time.Millisecond

// commitPatience is the time in which it is tried again. A libvirtd that is only slow, on a busy node, or that waited
// for an answer of the stopped QEMU, says then that the guest still stands there.
const commitPatience = 5 * time.Second

var errEnding = errors.New("libvirtd has something to do with it first")

// looked is the result of a look at the domain.
type looked struct {
	domain hypervisor.Domain
	err    error
}

// lookAt looks at the domain meanwhile.
func lookAt(ctx context.Context, conn hypervisor.Connection) <-chan looked {
	out := make(chan looked, 1)
	go func() {
		d, err := conn.Domain(ctx)
		out <- looked{d, err}
	}()
	return out
}

// commit stops the guest's QEMU, so that only the launcher can continue it: the guest is at the target, too, and may be
// continued there.
// It does so only as long as this guest stands still for its migration; otherwise libvirt has decided already, and
// Migrate will say how.
func (g *guest) commit(ctx context.Context, uid string) (_ handoff, err error) {
	g.deciding.Lock()
	defer g.deciding.Unlock()
	g.mu.Lock()
	underWay := g.life.Now() == lifecycle.Migrating && g.early == nil && g.state.Migration.GetUid() == uid
	conn, paused := g.conn, g.migration.paused
	stands := paused || g.state.Migration.GetMode() == stopped
	g.mu.Unlock()
	switch {
	case !underWay:
		return handoff{}, errors.New("the migration is over")
	case conn == nil:
		return handoff{}, errors.New("libvirtd does not answer")
	}
	qemu, err := g.qemu()
	if err != nil {
		return handoff{}, err
	}
	defer func() {
		if err != nil {
			_ = qemu.Release()
		}
	}()
	// libvirt would wait for the answer of a stopped QEMU before it says anything else.
	if err := g.stopLooking(ctx); err != nil {
		return handoff{}, err
	}
	defer func() {
		if err != nil {
			<-g.looking
		}
	}()
	standsStill := func(look looked) error {
		if d := look.domain; look.err == nil && (d.Run != hypervisor.Paused || !d.Stopped() && !stands) {
			return errors.New("the guest runs here")
		}
		return look.err
	}
	for began := time.Now(); ; {
		// Stopped, it cannot be resumed between the look and the end.
		if err := qemu.Signal(syscall.SIGSTOP); err != nil {
			return handoff{}, fmt.Errorf("stop QEMU: %w", err)
		}
		look := lookAt(ctx, conn)
		select {
		case found := <-look:
			if err = standsStill(found); err != nil {
				return handoff{}, errors.Join(err, qemu.Signal(syscall.SIGCONT))
			}
		case <-time.After(endPatience):
			// It goes on ending the guest, or does whatever else it wants of QEMU, and says then how it went.
			if err = qemu.Signal(syscall.SIGCONT); err == nil {
				err = standsStill(<-look)
			}
			if err == nil && time.Since(began) < commitPatience {
				continue
			}
			return handoff{}, errors.Join(errEnding, err)
		}
		break
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applyLocked(lifecycle.StartHandoff)
	g.migration.handedOver = make(chan struct{})
	return handoff{qemu: qemu, paused: paused}, nil
}
