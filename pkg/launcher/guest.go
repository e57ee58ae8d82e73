package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/virtkit/virtkit/pkg/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
)

// guest is the one guest of this pod: its state as virt-handler sees it, and the connection to the
// daemon that runs it, which comes and goes.
type guest struct {
	dial func(context.Context) (hypervisor.Connection, error)
	// qemuLog is where libvirt writes how QEMU ended, for an end that nobody saw.
	qemuLog string
	log     *slog.Logger

	mu sync.Mutex
	// state is replaced, never changed; changed is closed when it is.
	state   *pb.GuestState
	changed chan struct{}
	final   chan struct{}
	// conn is nil while there is no connection; linked is closed when there is one.
	conn   hypervisor.Connection
	linked chan struct{}
	// life is where the guest is and who decides about it; applyLocked changes it.
	life lifecycle.Machine
	// early is how the domain has ended, as long as life holds that back.
	early *hypervisor.End
	// inherited says that the connection of now found the guest here: how one ends that comes later is an event of this
	// connection.
	inherited bool
	// here is closed when the guest of another launcher is received, and died when it ends before its source has let it go.
	here, died chan struct{}
	// migration is the one to another launcher that is under way, or was the last.
	migration outgoing
	// decided has what virt-handler knows of a guest that is being handed over: wordRunning, or wordDead.
	decided chan string
	// note writes the launcher's last words ahead.
	note func(termination.Message) error
	// deciding is held by who decides whether the guest stays or is given up.
	deciding sync.Mutex
	// qemu finds the domain's process.
	qemu func() (process, error)
	// call connects to a unix socket.
	call func(ctx context.Context, path string) (net.Conn, error)
	// looking is held (a value is in it) while a migration's account is asked for, for which QEMU must not be stopped.
	looking chan struct{}
	// postCopyError is why the guest's migration failed after it had left by post-copy.
	postCopyError string
	// moves has the migration to make.
	moves chan move
	// terminated says that the pod is being ended, and the guest with it.
	terminated bool
	// stopAt is when a guest that is shutting down loses its power; zero when none was asked to.
	stopAt   time.Time
	stopping chan struct{}
	// asked wakes the one who asks the guest agent.
	asked chan struct{}
}

func newGuest(dial func(context.Context) (hypervisor.Connection, error), qemuLog string, log *slog.Logger) *guest {
	return &guest{
		dial:     dial,
		qemuLog:  qemuLog,
		log:      log,
		state:    &pb.GuestState{Lifecycle: pb.Lifecycle_LIFECYCLE_NONE},
		changed:  make(chan struct{}),
		final:    make(chan struct{}),
		linked:   make(chan struct{}),
		stopping: make(chan struct{}, 1),
		asked:    make(chan struct{}, 1),
		moves:    make(chan move, 1),
		looking:  make(chan struct{}, 1),
		here:     make(chan struct{}),
		died:     make(chan struct{}),
		decided:  make(chan string, 1),
		note:     func(termination.Message) error { return nil },
		call:     dialUnix,
		qemu:     func() (process, error) { return nil, errors.New("find QEMU: not known where") },
	}
}

// isFinal says whether a guest in this state is gone.
func isFinal(l pb.Lifecycle) bool {
	switch l {
	case pb.Lifecycle_LIFECYCLE_SHUTOFF, pb.Lifecycle_LIFECYCLE_CRASHED, pb.Lifecycle_LIFECYCLE_DESTROYED, pb.Lifecycle_LIFECYCLE_MIGRATED:
		return true
	}
	return false
}

func (g *guest) snapshot() *pb.GuestState {
	state, _ := g.watch()
	return state
}

// watch gives the state and a channel that is closed when there is a newer one.
func (g *guest) watch() (*pb.GuestState, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, g.changed
}

// ended is closed when the guest is gone.
func (g *guest) ended() <-chan struct{} { return g.final }

// update changes the state, unless the guest is gone or f changes nothing.
func (g *guest) update(f func(*pb.GuestState)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.updateLocked(f)
}

func (g *guest) updateLocked(f func(*pb.GuestState)) {
	if isFinal(g.state.Lifecycle) {
		return
	}
	next := proto.CloneOf(g.state)
	f(next)
	if proto.Equal(next, g.state) {
		return
	}
	if next.Lifecycle != g.state.Lifecycle {
		g.log.Info("guest", "state", next.Lifecycle.String(), "reason", next.Reason)
	}
	g.state = next
	close(g.changed)
	g.changed = make(chan struct{})
	if isFinal(next.Lifecycle) {
		close(g.final)
	}
}

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

// listen follows one connection until it is lost. It begins with a look, because much may have
// happened while there was none. Later a domain that is missing means nothing: its end is an event.
func (g *guest) listen(ctx context.Context, conn hypervisor.Connection) {
	g.refresh(ctx, conn, true)
	for {
		select {
		case e, ok := <-conn.Events():
			switch {
			case !ok:
				return
			case e.End != nil:
				g.end(*e.End)
			default:
				g.refresh(ctx, conn, false)
			}
		case <-ctx.Done():
			return
		}
	}
}

// end takes an end that the daemon reported.
func (g *guest) end(end hypervisor.End) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endLocked(end)
}

// refresh asks the daemon how the guest is. With first, on a new connection, a domain that is not known yet is ours,
// having been created as the last connection was lost; and one that is missing has ended unseen.
func (g *guest) refresh(ctx context.Context, conn hypervisor.Connection, first bool) {
	d, err := conn.Domain(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case errors.Is(err, hypervisor.ErrNoDomain):
		if first && g.inherited && g.early == nil && !g.life.Now().Final() {
			g.endLocked(g.lastWords())
		}
	case err != nil:
		g.log.Warn("cannot ask libvirtd for the guest's state", "err", err)
	default:
		if first {
			g.applyLocked(lifecycle.DomainFound)
		}
		g.applyLocked(seen(d))
		if g.life.Now().HasGuest() {
			g.observeLocked(d)
		}
	}
}

// observeLocked records what a domain looks like.
func (g *guest) observeLocked(d hypervisor.Domain) {
	connected := d.AgentConnected && !g.state.AgentConnected
	g.updateLocked(func(s *pb.GuestState) {
		waits := g.life.Now() == lifecycle.HandingOver && s.Reason == names.ReasonHandoff
		s.Lifecycle, s.Reason = g.lifecycleLocked(d), d.Reason
		if waits {
			s.Reason = names.ReasonHandoff
		}
		if s.StartedAt == nil {
			s.StartedAt = timestamppb.Now()
		}
		s.Emulation = d.Emulated
		s.Machine = d.Machine
		s.MemoryAtBoot, s.MemoryCurrent, s.MemoryRequested = d.MemoryAtBoot, d.Memory, 0
		if d.Plugged != nil {
			s.MemoryRequested = d.Plugged.Requested
		}
		s.Vcpus = uint32(d.VCPUs)
		s.AgentConnected = d.AgentConnected
		if d.Disks != nil {
			s.VolumeTargets = volumeTargets(d)
		}
		if d.Links != nil {
			s.InterfaceLinks = interfaceLinks(d.Links)
		}
		if !d.AgentConnected {
			s.AgentVersion, s.GuestOsJson, s.InterfacesJson, s.FsfreezeStatus = "", nil, nil, ""
			s.AgentLacks = nil
		}
	})
	if connected {
		g.wakeAgent()
	}
}

func (g *guest) lifecycleLocked(d hypervisor.Domain) pb.Lifecycle {
	switch {
	case g.life.Now() == lifecycle.HandingOver && g.state.Reason == names.ReasonHandoff:
		return pb.Lifecycle_LIFECYCLE_PAUSED
	case d.Run == hypervisor.Stopping, !g.stopAt.IsZero():
		return pb.Lifecycle_LIFECYCLE_SHUTTING_DOWN
	case d.Run == hypervisor.Paused && !g.pausedToMoveLocked(d):
		return pb.Lifecycle_LIFECYCLE_PAUSED
	}
	return pb.Lifecycle_LIFECYCLE_RUNNING
}

// pausedToMoveLocked says that the guest stands still because it moves.
func (g *guest) pausedToMoveLocked(d hypervisor.Domain) bool {
	return g.life.Now().Leaving() && (d.Moving() || g.state.Migration.GetMode() != preCopy)
}

// maxQEMULog is how much of the end of QEMU's log is read, bytes.
const maxQEMULog = 16 << 10

// lastWords finds how a domain ended that is gone when the daemon comes back: libvirt's log says so
// if the daemon noticed; else it is a crash.
func (g *guest) lastWords() hypervisor.End {
	lost := hypervisor.End{Outcome: hypervisor.Crashed, Reason: "lost"}
	text, err := tail(g.qemuLog, maxQEMULog)
	if err != nil {
		g.log.Warn("cannot read QEMU's log", "err", err)
		return lost
	}
	if end, ok := hypervisor.EndInLog(text); ok {
		return end
	}
	return lost
}

// tail reads the last n bytes of a file.
func tail(path string, n int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-n), n))
	return string(b), err
}

// create starts the domain, or with paused makes it so that only an unpause starts its vCPUs. ready is called with the state before anybody can see that it runs.
func (g *guest) create(ctx context.Context, xml string, paused bool, ready func(*pb.GuestState)) error {
	conn, err := g.connection(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.early = nil
	g.applyLocked(lifecycle.Start)
	state := g.life.Now()
	g.mu.Unlock()
	if state != lifecycle.Starting {
		return fmt.Errorf("the guest cannot be started: it is %s", state)
	}
	err = conn.Create(ctx, xml, paused)
	var d hypervisor.Domain
	var gone error
	if err == nil {
		d, gone = conn.Domain(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.early = nil
		g.applyLocked(lifecycle.FailStart)
		return err
	}
	g.applyLocked(lifecycle.FinishStart)
	g.updateLocked(ready)
	switch {
	case g.early != nil:
		g.endLocked(*g.early)
	case errors.Is(gone, hypervisor.ErrNoDomain):
		// It has ended already; the event that says how is on its way.
	case gone != nil:
		g.log.Warn("cannot ask libvirtd for the guest's state", "err", gone)
	default:
		g.observeLocked(d)
	}
	return nil
}

// exists says whether the guest has been started in this pod.
func (g *guest) exists() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.Now().HasGuest() || g.life.Now().Final()
}
