package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
)

// The handoff of a guest that moves. libvirt by itself starts the guest at the target and then tells the source; when
// that word is lost the source lets its own guest go on, and there are two. So the guest arrives held: complete, but
// stopped. The two launchers agree over a connection of their own:
//
//	target   the guest is here, whole                    "arrived"
//	source   stops its QEMU (SIGSTOP), makes sure that libvirt
//	         has not let the guest go on                 "run", or "stay" for a guest that was paused
//	target   starts the guest                            "running"
//	source   kills its QEMU
//
// From "run" to "running" the guest's memory is on both sides and both stand still but for the one that may start.
// Should the target's QEMU end before it was started, the target says "dead" instead, and the guest goes on at the
// source: see handoff. The two libvirtds have no say: the answer for which the source's waits is held back by a gate.
//
// When the connection is lost the source makes another, for as long as it takes. When a launcher is lost, its last
// words (its termination message, written ahead) say what the other one may do, and virt-handler passes them on:
// TakeOver.
const (
	wordArrived = "arrived"
	wordRun     = "run"
	wordStay    = "stay"
	wordRunning = "running"
	wordDead    = "dead"
	// maxWord bounds a line of it, bytes.
	maxWord = 32
)

// handoverPause is the pause between attempts to go on with a hand-over.
const handoverPause = 50 * time.Millisecond

// startTries is how often the start of a guest that has arrived is tried.
const startTries = 100

// readWord reads one line.
func readWord(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxWord)).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// process is a process to which signals can be sent.
type process interface {
	Signal(sig os.Signal) error
	Release() error
}

// errQEMUEnded says that the process whose number libvirt has kept is gone, whatever libvirtd knows yet.
var errQEMUEnded = errors.New("it has ended")

// findQEMU finds the domain's QEMU by the file in which libvirt keeps its number. The number may be another process's
// by now, so its name is looked at, too, once nobody else can get the number. The error is errQEMUEnded when no such
// process is left.
func findQEMU(pidFile, emulator string) (process, error) {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, fmt.Errorf("find QEMU: %w", err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil || pid <= 1 {
		return nil, fmt.Errorf("find QEMU: %s holds %q", pidFile, text)
	}
	found, err := os.FindProcess(pid) // holds on to it (pidfd)
	if err != nil {
		return nil, fmt.Errorf("find QEMU: %w", err)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if name := strings.TrimSuffix(string(comm), "\n"); err == nil && (name == "" || !strings.HasPrefix(filepath.Base(emulator), name)) {
		err = fmt.Errorf("%w: process %d is %s", errQEMUEnded, pid, name)
	}
	if err == nil {
		err = found.Signal(syscall.Signal(0)) // it lives, so the name was its own
	}
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: there is no process %d", errQEMUEnded, pid)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find QEMU: %w", err), found.Release())
	}
	return found, nil
}

// link is the source's end of a handoff.
type link struct {
	conn net.Conn
	// gate keeps libvirt from ending the guest here; nil where libvirt decides.
	gate *gate
	// verdict has what became of the migration, once.
	verdict chan bool
	done    chan struct{}
	// answered says that the other side was told to take the guest over.
	answered atomic.Bool
}

// reach connects to the other launcher and hands the guest over when it has arrived there.
func (g *guest) reach(ctx context.Context, m *move) (*link, error) {
	conn, err := g.call(ctx, m.handover)
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
	handover := m.handover
	uid := m.uid
	go func() {
		defer close(l.done)
		g.letGo(ctx, l, uid, handover)
	}()
	return l, nil
}

// close tells the other side that the guest has moved, or nothing, and ends the link.
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

// arrivedPatience is how long the other launcher may take to say that the guest is there, once libvirt has said so.
// Then the guest stays: nobody was told to start it there.
const arrivedPatience = 10 * time.Second

// letGo answers the other launcher: at once if the guest can be handed over as soon as it is there, or else when it is
// known what became of it.
func (g *guest) letGo(ctx context.Context, l *link, uid, handover string) {
	defer l.conn.Close()
	heard := make(chan struct{})
	go func() {
		select {
		case <-l.gate.held():
			_ = l.conn.SetReadDeadline(time.Now().Add(arrivedPatience))
		case <-heard:
		}
	}()
	word, err := readWord(l.conn)
	close(heard)
	if err == nil && word != wordArrived {
		err = fmt.Errorf("the other launcher says %q", word)
	}
	if err == nil {
		var given handoff
		if given, err = g.commit(ctx, uid); err == nil {
			l.answered.Store(true)
			g.handOff(ctx, l, given, handover)
			return
		}
	}
	g.log.Info("the guest is not handed over", "uid", uid, "err", err)
	l.gate.shut()
	gone := <-l.verdict
	paused := g.leftPaused()
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
	g.log.Info("the other launcher has not confirmed that it starts the guest; if it has not heard, virt-handler will tell it", "uid", uid, "err", err)
}

func (g *guest) leftPaused() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leftAsPaused
}

// endPatience is how long libvirt may take to say how a stopped guest is. When the word from the target came to it as
// well and it is just ending the guest, it says nothing until QEMU is gone, and a stopped one does not obey SIGTERM:
// libvirt waits ten seconds before it sends SIGKILL (virProcessKillPainfully), in which the guest would run nowhere.
const endPatience = 250 * time.Millisecond

var errEnding = errors.New("libvirtd has something to do with it first")

// looked is what a look at the domain gave.
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

// commit stops the guest's QEMU, so that nothing lets it go on but we: it is elsewhere, too, and may be started there.
// It does so only as long as this guest stands still for its migration; otherwise libvirt has decided already, and
// Migrate will say how.
func (g *guest) commit(ctx context.Context, uid string) (_ handoff, err error) {
	g.deciding.Lock()
	defer g.deciding.Unlock()
	g.mu.Lock()
	underWay, conn, paused := g.migrating && g.early == nil && g.state.Migration.GetUid() == uid, g.conn, g.leftAsPaused
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
	// Stopped, it cannot be let go on between the look and the end.
	if err := qemu.Signal(syscall.SIGSTOP); err != nil {
		return handoff{}, fmt.Errorf("stop QEMU: %w", err)
	}
	look := lookAt(ctx, conn)
	var d hypervisor.Domain
	select {
	case found := <-look:
		d, err = found.domain, found.err
	case <-time.After(endPatience):
		// It goes on ending the guest, or does whatever else it wants of QEMU, and says then how it went.
		err = errors.Join(errEnding, qemu.Signal(syscall.SIGCONT))
		<-look
		return handoff{}, err
	}
	if err == nil && (d.Run != hypervisor.Paused || !d.Stopped() && !stands) {
		err = errors.New("the guest runs here")
	}
	if err != nil {
		return handoff{}, errors.Join(err, qemu.Signal(syscall.SIGCONT))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.given = make(chan struct{})
	return handoff{qemu: qemu, paused: paused}, nil
}

// serveArrival answers those who want to know when the guest is here, until it runs here and the launcher that it left
// knows, or ctx ends.
func (s *service) serveArrival(ctx context.Context, listener net.Listener) {
	ctx, cancel := context.WithCancel(ctx)
	var dead sync.WaitGroup
	dead.Go(func() { s.guest.finishDead(ctx) })
	defer dead.Wait()
	defer cancel()
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		err = s.askToTakeOver(ctx, conn)
		conn.Close()
		if err == nil && s.guest.started() {
			return
		}
		if err == nil {
			continue // it may not have been heard that the guest has ended
		}
		s.options.Log.Info("the launcher that the guest leaves does not say that it has let it go", "err", err)
	}
}

// askToTakeOver waits for the guest to arrive, has it started once the other side has let it go, and says so.
func (s *service) askToTakeOver(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	// The other side says nothing before it is asked, so what is read is the answer or its end.
	answer := make(chan error, 1)
	var word string
	go func() {
		var err error
		word, err = readWord(conn)
		answer <- err
	}()
	say := func(word string) error {
		_, err := io.WriteString(conn, word+"\n")
		return err
	}
	select {
	case <-s.guest.here:
		if s.guest.started() {
			err := errors.Join(say(wordRunning), conn.Close()) // it was not heard the first time
			if end := <-answer; end != nil {
				s.guest.log.Debug("the other launcher has heard that the guest runs", "end", end)
			}
			return err
		}
		if s.guest.diedHere() {
			return s.sayDead(say, conn, answer)
		}
		if err := say(wordArrived); err != nil {
			return errors.Join(err, conn.Close(), <-answer)
		}
		select {
		case <-s.guest.died:
			return s.sayDead(say, conn, answer)
		case err := <-answer:
			if err != nil {
				return err
			}
		}
	case err := <-answer:
		if err != nil {
			return err
		}
		// libvirt there was faster; libvirt here has yet to tell us.
		select {
		case <-s.guest.here:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if word != wordRun && word != wordStay {
		return errors.New("it says what nobody expects")
	}
	if s.guest.diedHere() {
		return say(wordDead)
	}
	if err := s.guest.takeOver(ctx, word == wordStay); err != nil {
		return err
	}
	if !s.guest.started() {
		return say(wordDead)
	}
	return say(wordRunning)
}

// sayDead tells the other side that the guest has ended here without having run, and waits until it has heard.
func (s *service) sayDead(say func(string) error, conn net.Conn, answer <-chan error) error {
	if err := say(wordDead); err != nil {
		return errors.Join(err, conn.Close(), <-answer)
	}
	if err := conn.SetReadDeadline(time.Now().Add(steerTimeout)); err != nil {
		return errors.Join(err, conn.Close(), <-answer)
	}
	if err := <-answer; err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// TakeOver implements the contract. To the launcher that the guest leaves it says that the other one's guest has ended
// without having run.
func (s *service) TakeOver(ctx context.Context, req *pb.TakeOverRequest) (*pb.TakeOverResponse, error) {
	if s.guest.decide(wordDead) {
		return &pb.TakeOverResponse{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	return &pb.TakeOverResponse{}, s.guest.takeOver(ctx, req.Paused)
}

// arriveLocked notes that the guest is here, whole, and stands still.
func (g *guest) arriveLocked() {
	if g.arrived {
		return
	}
	g.arrived = true
	if err := g.note(neverRan); err != nil {
		g.log.Warn("should the launcher be killed now, nobody will know that the guest has not run here", "err", err)
	}
	close(g.here)
	g.updateLocked(func(s *pb.GuestState) { s.Arrived = true })
}

// dieLocked notes that a guest that has arrived has ended, and was not started.
func (g *guest) dieLocked() {
	if g.dead || g.released {
		return
	}
	g.dead = true
	close(g.died)
}

// deadPatience is how long a launcher stays whose guest has ended before it was started, to tell that itself.
const deadPatience = 5 * time.Second

// finishDead ends the launcher then: its last words say the same.
func (g *guest) finishDead(ctx context.Context) {
	select {
	case <-g.died:
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(deadPatience):
	case <-ctx.Done():
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.released && g.early != nil {
		g.released, g.created = true, true
		g.finishLocked(*g.early)
	}
}

// started reports whether the guest may have run here since it arrived.
func (g *guest) started() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ran
}

func (g *guest) diedHere() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead
}

// takeOver starts a guest that has arrived, whose source has let it go; or with paused leaves it as it is.
func (g *guest) takeOver(ctx context.Context, paused bool) error {
	g.mu.Lock()
	if !g.arrived {
		g.mu.Unlock()
		return status.Error(codes.FailedPrecondition, "no guest has arrived")
	}
	if !g.released {
		g.released = true
		if g.early != nil { // it has ended meanwhile
			g.created = true
			g.finishLocked(*g.early)
		}
	}
	over := g.created || isFinal(g.state.Lifecycle)
	g.mu.Unlock()
	for tries := 1; !over; tries++ {
		conn, err := g.connection(ctx)
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		if err := g.mayStart(ctx, conn); err != nil {
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
		case <-time.After(handoverPause):
		case <-ctx.Done():
			return status.Error(codes.Unavailable, err.Error())
		}
	}
	return nil
}

// mayStart notes that the guest may have run here from now on, unless it has ended: whoever looks at its last words
// must not take an older memory for the guest's once this one may have written to the disks.
func (g *guest) mayStart(ctx context.Context, conn hypervisor.Connection) error {
	if _, err := conn.Domain(ctx); errors.Is(err, hypervisor.ErrNoDomain) {
		return nil
	}
	// libvirtd may not have noticed yet that QEMU has died.
	switch qemu, err := g.qemu(); {
	case errors.Is(err, errQEMUEnded):
		return nil
	case err == nil:
		if err := qemu.Release(); err != nil {
			g.log.Debug("QEMU's process was not let go", "err", err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ran {
		return nil
	}
	if err := g.note(termination.Message{}); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	g.ran = true
	return nil
}

// listenForArrival makes the socket on which the launcher that the guest leaves reaches this one.
func (s *service) listenForArrival() (net.Listener, error) {
	return listen(filepath.Join(s.options.RunDir, names.SocketMigrationArrival))
}
