package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
)

// guest is the one guest of this pod: its state as virt-handler sees it, and the connection to the
// daemon that runs it, which comes and goes.
type guest struct {
	dial func(context.Context) (hypervisor.Connection, error)
	// qemuLog is the file in which libvirt records how QEMU ended, for an end that nobody saw.
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
	// life says where the guest is and who decides about it; applyLocked changes it.
	life lifecycle.Machine
	// early is the end of the domain, as long as life holds that back.
	early *hypervisor.End
	// starts counts the times that a domain was about to be created, or was.
	starts int
	// unheard is the connection over which a domain is created, or was, until the event of its start is taken.
	unheard hypervisor.Connection
	// inherited says that the present connection found the guest here: an end that comes later is an event of this
	// connection.
	inherited bool
	// here is closed when the guest of another launcher is received, and died when it ends before its source has let it
	// go.
	here, died chan struct{}
	// migration is the one to another launcher that is under way, or was the last.
	migration outgoing
	// decided has virt-handler's answer about a guest in the handoff: wordRunning, or wordDead.
	decided chan string
	// note writes the launcher's termination message ahead.
	note func(termination.Message) error
	// deciding is held by who decides whether the guest stays or is given up.
	deciding sync.Mutex
	// qemu finds the domain's process.
	qemu func() (process, error)
	// call connects to a unix socket.
	call func(ctx context.Context, path string) (net.Conn, error)
	// looking is held (a value is in it) while a migration's account is asked for, for which QEMU must not be stopped.
	looking chan struct{}
	// postCopyError is the reason why the guest's migration failed after it had left by post-copy.
	postCopyError string
	// moves has the migration to make.
	moves chan move
	// freezes counts the freezes and thaws that the agent has answered.
	freezes int
	// held says that a freeze has paused the guest, and is to resume it.
	held bool
	// pauses counts the times that a freeze has paused it.
	pauses int
	// terminated says that the pod is being ended, and the guest with it.
	terminated bool
	// unplugged says that the guest's plug was pulled, however libvirtd reports the end of its QEMU.
	unplugged bool
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
		state:    &pb.GuestState{Lifecycle: pb.Lifecycle_LIFECYCLE_NONE, CopiesDisks: true, CopiesPluggedDisks: true},
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

func (g *guest) snapshot() *pb.GuestState {
	state, _ := g.watch()
	return state
}

// watch returns the state and a channel that is closed when there is a newer state.
func (g *guest) watch() (*pb.GuestState, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, g.changed
}

// awaitStart waits until the guest runs here, or has ended; false when ctx ended before.
func (g *guest) awaitStart(ctx context.Context) bool {
	for {
		state, changed := g.watch()
		if state.Lifecycle != pb.Lifecycle_LIFECYCLE_NONE {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// ended returns a channel that is closed when the guest is gone.
func (g *guest) ended() <-chan struct{} { return g.final }

// update changes the state, unless the guest is gone or f changes nothing.
func (g *guest) update(f func(*pb.GuestState)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.updateLocked(f)
}

func (g *guest) updateLocked(f func(*pb.GuestState)) {
	if g.state.Lifecycle.Final() {
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
	if next.Lifecycle.Final() {
		close(g.final)
	}
}

// create starts the domain, or with paused makes it so that only an unpause starts its vCPUs. ready is called with the
// state before anybody can see that it runs.
func (g *guest) create(ctx context.Context, xml string, paused bool, ready func(*pb.GuestState)) error {
	return g.createBy(ctx, func(ctx context.Context, conn hypervisor.Connection) error {
		return conn.Create(ctx, xml, paused)
	}, ready)
}

// createBy does what create does, for a domain that is made otherwise.
func (g *guest) createBy(
	ctx context.Context, makeDomain func(context.Context, hypervisor.Connection) error, ready func(*pb.GuestState),
) error {
	conn, err := g.connection(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.early = nil
	g.starts++
	g.applyLocked(lifecycle.Start)
	state := g.life.Now()
	if state == lifecycle.Starting {
		g.unheard = conn
	}
	g.mu.Unlock()
	if state != lifecycle.Starting {
		return fmt.Errorf("the guest cannot be started: it is %s", state)
	}
	err = makeDomain(ctx, conn)
	var d hypervisor.Domain
	var gone error
	if err == nil {
		d, gone = conn.Domain(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.early, g.unheard = nil, nil
		g.applyLocked(lifecycle.FailStart)
		return err
	}
	g.starts++ // whoever found no domain before has seen the one before this
	g.applyLocked(lifecycle.FinishStart)
	g.updateLocked(ready)
	if gone == nil {
		g.early = nil // it was the end of a domain before this one, which is there
	}
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

// exists reports whether the guest has been started in this pod.
func (g *guest) exists() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life.Now().HasGuest() || g.life.Now().Final()
}
