package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/status"
	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/network"
)

const (
	// maxMessage bounds what a launcher can make virt-handler keep in memory, bytes.
	maxMessage = 1 << 20
	// startTimeout bounds one attempt to start a guest; disks and firmware are prepared in it.
	startTimeout = 5 * time.Minute
	// stopTimeout bounds one request to stop a guest; a launcher that is starting it answers after that.
	stopTimeout = time.Minute
	// endLimit is how long the end of a session may take before nobody waits for it any more.
	endLimit = 10 * time.Second
	// retryFirst and retryMost are the ends of the back-off between attempts.
	retryFirst = 200 * time.Millisecond
	retryMost  = 30 * time.Second
	// reconnectMost is the longest wait before a launcher that does not answer is tried again.
	reconnectMost = time.Second
)

// target is the launcher that a session is about.
type target struct {
	VMI types.NamespacedName
	UID types.UID // the VMI's
	Pod types.UID
	// KVM is whether the launcher's container asked for /dev/kvm.
	KVM bool
	// Annotations are the pod's as the session began, which what was asked of Multus is among.
	Annotations map[string]string
}

// observation is what a session knows. A published one is never changed.
type observation struct {
	Guest        *launcherpb.GuestState
	Plan         *network.Plan
	Failure      *status.Failure
	NeverStarted bool
	// Prepared: the launcher waits for a guest that comes by a migration.
	Prepared bool
	// ArrivedAt is when a guest that comes by a migration was first seen here, whole.
	ArrivedAt time.Time
	// Departure is a migration away from here that failed before the launcher knew of it.
	Departure *status.Departure
	// Volumes is what was done with hotplugged volumes, by name.
	Volumes map[string]status.Volume
	// Unsized is why the guest could not be given the size that its VMI says; empty when nothing is wrong.
	Unsized string
	// Unlinked is why the guest's interfaces are not as its VMI says; empty when nothing is wrong.
	Unlinked string
	// LostAt is when the launcher stopped answering, zero while it answers or before it first did.
	LostAt time.Time
	// Dead says that the process which served the launcher's socket has ended.
	Dead bool
}

// session follows one launcher from its socket's appearance to its guest's final state, in one
// goroutine: connect, prepare the pod, start the guest, watch it. Whatever goes wrong on the way
// is tried again. It writes nothing to the API; it publishes observations.
type session struct {
	node   *Node
	target target
	log    *slog.Logger
	// changed is called after each new observation. Urgent ones change a phase or a condition that
	// people wait for; the others may be taken together.
	changed func(urgent bool)

	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	vmi      *v1.VirtualMachineInstance
	pod      map[string]string // the pod's annotations, nil: those of target
	seen     observation
	client   launcherpb.LauncherClient // nil while not connected
	process  *podfs.Process            // the launcher's, nil while not connected
	held     *lease                    // of process
	stopBy   time.Time                 // zero: not asked to stop
	stopping chan struct{}             // closed and replaced when stopBy changes
	renewed  chan struct{}             // closed and replaced when vmi changes

	departure departure
	guest     context.Context         // ends when the guest is gone from here
	gone      context.CancelCauseFunc // of guest; only its first cause counts, for a launcher may say anything
	told      told                    // of the migration's progress
	departing chan struct{}           // closed and replaced when departure changes, or the launcher's account of it

	taking chan bool // asks to start a guest that has arrived; true leaves it paused
}

// startSession follows a launcher until ctx ends. With stopBy set the guest is not started any more.
func startSession(ctx context.Context, node *Node, t target, vmi *v1.VirtualMachineInstance, stopBy time.Time, changed func(urgent bool)) *session {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{
		node: node, target: t, vmi: vmi, changed: changed, cancel: cancel,
		done: make(chan struct{}), stopBy: stopBy, stopping: make(chan struct{}), renewed: make(chan struct{}),
		departing: make(chan struct{}), taking: make(chan bool, 1),
		log: node.Log.With("vmi", t.VMI.String(), "pod", t.Pod),
	}
	s.guest, s.gone = context.WithCancelCause(context.Background())
	go func() {
		defer close(s.done)
		defer s.gone(streams.ErrUnfollowed)
		defer cancel()
		s.run(ctx)
	}()
	return s
}

// end stops following the launcher, which goes on, and waits for the goroutine, but no longer than limit. It
// reports whether the goroutine has ended.
func (s *session) end(limit time.Duration) bool {
	s.cancel()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.done:
		return true
	case <-timer.C:
		return false
	}
}

// refresh gives the session a newer VMI for the next attempt to start it.
func (s *session) refresh(vmi *v1.VirtualMachineInstance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vmi != nil && s.vmi.ResourceVersion == vmi.ResourceVersion {
		return
	}
	s.vmi = vmi
	close(s.renewed)
	s.renewed = make(chan struct{})
}

// sawPod remembers the pod's annotations: Multus writes what it did when the kubelet makes the pod, after it was given to the node.
func (s *session) sawPod(annotations map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pod = annotations
}

// podAnnotations are the pod's as they were seen last.
func (s *session) podAnnotations() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pod == nil {
		return s.target.Annotations
	}
	return s.pod
}

func (s *session) latest() *v1.VirtualMachineInstance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vmi
}

func (s *session) observation() observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// launcher is the connected launcher, or an error to show to the user.
func (s *session) launcher() (launcherpb.LauncherClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil, errors.New("the launcher does not answer yet; try again in a moment")
	}
	return s.client, nil
}

// stop asks for the guest's shutdown, with power-off at the time given. It reports whether that is
// news: the first request, or an earlier time.
func (s *session) stop(by time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopBy.IsZero() && !by.Before(s.stopBy) {
		return false
	}
	s.stopBy = by
	close(s.stopping)
	s.stopping = make(chan struct{})
	return true
}

func (s *session) stopRequest() (by time.Time, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopBy, s.stopping
}

// publish changes the observation.
func (s *session) publish(urgent bool, change func(*observation)) {
	s.mu.Lock()
	change(&s.seen)
	s.mu.Unlock()
	s.changed(urgent)
}

// run attaches again and again until the guest is gone.
func (s *session) run(ctx context.Context) {
	var wait backoff
	for ctx.Err() == nil {
		err := s.attach(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.Is(err, errLost):
			s.log.Info("launcher does not answer", "err", err)
			s.publish(true, func(o *observation) {
				if o.LostAt.IsZero() {
					o.LostAt = s.node.Now()
				}
			})
		default:
			final := grpcstatus.Code(err) == codes.InvalidArgument
			message := describe(err)
			s.log.Warn("guest not started", "err", message, "final", final)
			s.publish(true, func(o *observation) { o.Failure = &status.Failure{Message: message, Final: final} })
			if final {
				return
			}
		}
		_, stopping := s.stopRequest()
		select {
		case <-ctx.Done():
		case <-stopping:
		case <-time.After(wait.next(err)):
		}
	}
}

// errLost marks failures of the connection, as opposed to a launcher that answered with an error.
var errLost = errors.New("launcher lost")

// attach connects to the launcher and follows it. It returns nil once there is nothing more to follow.
func (s *session) attach(ctx context.Context) error {
	if err := s.stillThere(ctx); err != nil {
		return err
	}
	_, err := attempt(ctx, s, "wait for the launcher", func() (struct{}, error) {
		return struct{}{}, podfs.WaitSocket(ctx, s.node.PodsDir, s.target.Pod, names.SocketLauncher)
	})
	if err != nil {
		return fmt.Errorf("wait for the launcher: %w", err)
	}
	run, err := step(ctx, s, "run volume", func() (*podfs.Run, error) {
		return podfs.OpenRun(s.node.PodsDir, s.target.Pod)
	})
	if err != nil {
		return err
	}
	defer run.Close()
	conn, err := step(ctx, s, "run volume", func() (*net.UnixConn, error) { return run.Dial(ctx, names.SocketLauncher) })
	if err != nil {
		// Nobody listens on a socket that was there: whoever made it has ended.
		s.knows(errors.Is(err, syscall.ECONNREFUSED))
		return fmt.Errorf("%w: %w", errLost, err)
	}
	defer conn.Close() // the client closes it, too, but only if there was a call
	process, err := podfs.Peer(conn, s.node.ProcDir, s.node.PodsDir, s.target.Pod)
	if err != nil {
		return err
	}
	held := newLease(process.Close)
	defer held.free()
	rpc, err := dial(conn)
	if err != nil {
		return err
	}
	defer rpc.Close()
	client := launcherpb.NewLauncherClient(rpc)
	s.mu.Lock()
	s.client, s.process, s.held = client, process, held
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.client, s.process, s.held = nil, nil, nil
		s.mu.Unlock()
	}()
	err = s.follow(ctx, client, run, process)
	if errors.Is(err, errLost) {
		s.knows(!process.Alive())
	}
	return err
}

// knows publishes whether the process that served the launcher's socket has ended, and the guest with it.
func (s *session) knows(dead bool) {
	s.publish(false, func(o *observation) { o.Dead = dead })
	if dead {
		s.gone(streams.ErrEnded)
	}
}

// stillThere fails when the launcher was lost and has taken its socket with it: it never makes another.
func (s *session) stillThere(ctx context.Context) error {
	if s.observation().LostAt.IsZero() {
		return nil
	}
	path := filepath.Join(podfs.RunPath(s.node.PodsDir, s.target.Pod), names.SocketLauncher)
	_, err := step(ctx, s, "run volume", func() (os.FileInfo, error) { return os.Lstat(path) })
	if err != nil && !errors.Is(err, errStuck) && ctx.Err() == nil {
		s.knows(true)
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func (s *session) follow(ctx context.Context, client launcherpb.LauncherClient, run *podfs.Run, process *podfs.Process) error {
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	s.awaitHeartbeat(ctx, client)
	working.Go(func() { s.keepRenewed(ctx, client) })
	if by, _ := s.stopRequest(); by.IsZero() {
		if err := s.start(ctx, client, run, process); err != nil {
			if grpcstatus.Code(err) == codes.InvalidArgument {
				s.release(ctx, client)
			}
			return err
		}
	}
	watch, err := client.Watch(ctx, &launcherpb.WatchRequest{})
	if err != nil {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	// The first message is the state of now. Shutdown comes after it, since there may be nothing to
	// shut down.
	first, err := watch.Recv()
	if err != nil {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	s.saw(first)
	if by, _ := s.stopRequest(); !by.IsZero() && first.Lifecycle == launcherpb.Lifecycle_LIFECYCLE_NONE {
		s.publish(true, func(o *observation) { o.NeverStarted = true })
		s.release(ctx, client)
		return nil
	}
	if isFinal(first) {
		return nil
	}
	working.Go(func() { s.passStops(ctx, client) })
	working.Go(func() { s.passDepartures(ctx, client, run) })
	working.Go(func() { s.passArrivals(ctx, client) })
	working.Go(func() { s.keepPlugged(ctx, client, process) })
	working.Go(func() { s.keepLinked(ctx, client) })
	working.Go(func() { s.keepSized(ctx, client) })
	if cpu := s.latest().Spec.Domain.CPU; cpu != nil && cpu.Realtime != nil {
		working.Go(func() { s.keepRealtime(ctx, process) })
	}
	for {
		state, err := watch.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the launcher ended the watch")
			}
			return fmt.Errorf("%w: %w", errLost, err)
		}
		s.saw(state)
		if isFinal(state) {
			return nil
		}
	}
}

// saw publishes a state of the guest.
func (s *session) saw(state *launcherpb.GuestState) {
	old := s.observation()
	urgent := old.Guest == nil || !old.LostAt.IsZero() || old.Guest.Lifecycle != state.Lifecycle ||
		old.Guest.Migration.GetPhase() != state.Migration.GetPhase() || old.Guest.Arrived != state.Arrived ||
		old.Guest.Migration.GetMode() != state.Migration.GetMode() || old.Guest.Vcpus != state.Vcpus || old.Guest.MemoryRequested != state.MemoryRequested
	s.publish(urgent, func(o *observation) {
		o.Guest, o.LostAt, o.Dead = state, time.Time{}, false
		if state.Arrived && o.ArrivedAt.IsZero() {
			o.ArrivedAt = s.node.Now()
		}
		if state.Lifecycle != launcherpb.Lifecycle_LIFECYCLE_NONE {
			o.Failure = nil
		}
	})
	switch {
	case moved(state):
		s.gone(streams.ErrMoved)
	case isFinal(state):
		s.gone(streams.ErrEnded)
	}
	if handing(old.Guest) != handing(state) {
		s.wakeDeparture()
	}
	if old.Guest.GetMigration().GetPhase() != state.Migration.GetPhase() || old.Guest.GetMigration().GetMode() != state.Migration.GetMode() || old.Guest.GetMigration().GetUid() != state.Migration.GetUid() {
		s.wakeDeparture()
		if m := state.Migration; m.GetPhase() == launcherpb.MigrationPhase_MIGRATION_PHASE_COMPLETED {
			s.log.Info("guest left", "migration", m.Uid, "took", m.EndedAt.AsTime().Sub(m.StartedAt.AsTime()), "downtime", m.Downtime.AsDuration())
		}
	}
}

// passStops hands each request to stop to the launcher.
func (s *session) passStops(ctx context.Context, client launcherpb.LauncherClient) {
	for {
		by, next := s.stopRequest()
		if !by.IsZero() {
			grace := max(0, by.Sub(s.node.Now()))
			asking, cancel := context.WithTimeout(ctx, stopTimeout)
			_, err := client.Shutdown(asking, &launcherpb.ShutdownRequest{GracePeriod: durationpb.New(grace)})
			cancel()
			if err != nil && ctx.Err() == nil {
				s.log.Warn("shutdown not taken", "err", describe(err))
				select {
				case <-ctx.Done():
					return
				case <-time.After(retryFirst):
				}
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// release lets a launcher go that will have no guest: it ends, and its pod with it. The launcher may
// have ended already, and the controller deletes the pod of a final VMI anyway.
func (s *session) release(ctx context.Context, client launcherpb.LauncherClient) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if _, err := client.Shutdown(ctx, &launcherpb.ShutdownRequest{}); err != nil {
		s.log.Info("launcher not released", "err", describe(err))
	}
}

func isFinal(g *launcherpb.GuestState) bool {
	switch g.GetLifecycle() {
	case launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, launcherpb.Lifecycle_LIFECYCLE_CRASHED, launcherpb.Lifecycle_LIFECYCLE_DESTROYED,
		launcherpb.Lifecycle_LIFECYCLE_MIGRATED:
		return true
	}
	return false
}
