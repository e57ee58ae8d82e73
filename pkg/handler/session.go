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
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

const (
	// maxMessage bounds what a launcher can make virt-handler keep in memory, bytes.
	maxMessage = 1 << 20
	// startTimeout bounds one attempt to start a guest; disks and firmware are prepared in it.
	startTimeout = 5 * time.Minute
	// endLimit is the time after which nobody waits for the end of a session any more.
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
	// KVM says whether the launcher's container asked for /dev/kvm.
	KVM bool
	// Annotations are the pod's as the session began, which what was asked of Multus is among.
	Annotations map[string]string
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

	outgoing     outgoing
	guest        context.Context         // ends when the guest is gone from here
	gone         context.CancelCauseFunc // of guest; only its first cause counts, for a launcher may say anything
	reported     reported                // of the migration's progress
	outgoingNews chan struct{}           // closed and replaced when outgoing changes, or the launcher's account of it

	admitting sync.Mutex        // of what another node says of the guest's addresses
	policies  multipolicy.Rules // in the pod

	freezes  signal    // asks to look at the launcher's account of a freeze
	arrivals signal    // says that the guest runs, which has come by a migration
	taking   chan bool // asks to start a guest that was received; true leaves it paused
}

// startSession follows a launcher until ctx ends. With stopBy set the guest is not started any more.
func startSession(
	ctx context.Context, node *Node, t target, vmi *v1.VirtualMachineInstance, stopBy time.Time,
	changed func(urgent bool),
) *session {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{
		node: node, target: t, vmi: vmi, changed: changed, cancel: cancel,
		done: make(chan struct{}), stopBy: stopBy, stopping: make(chan struct{}), renewed: make(chan struct{}),
		outgoingNews: make(chan struct{}), freezes: newSignal(), arrivals: newSignal(),
		taking: make(chan bool, 1),
		log:    node.Log.With("vmi", t.VMI.String(), "pod", t.Pod),
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

// sawPod remembers the pod's annotations: Multus writes what it did when the kubelet makes the pod, after it was given
// to the node.
func (s *session) sawPod(annotations map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pod = annotations
}

// podAnnotations returns the pod's annotations as last seen.
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

// launcher returns the connected launcher, or an error to show to the user.
func (s *session) launcher() (launcherpb.LauncherClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil, errors.New("the launcher does not answer yet; try again in a moment")
	}
	return s.client, nil
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
			s.publish(true, func(o *observation) { o.Failure = &vmistatus.Failure{Message: message, Final: final} })
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
	conn,
		err := step(ctx, s, "run volume", func() (*net.UnixConn, error) { return run.Dial(ctx, names.SocketLauncher) })
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

func (s *session) follow(
	ctx context.Context, client launcherpb.LauncherClient, run *podfs.Run, process *podfs.Process,
) error {
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
	working.Go(func() { s.advertise(ctx, process) })
	working.Go(func() { s.announceIn(ctx, process) })
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
	if first.GetLifecycle().Final() {
		return nil
	}
	working.Go(func() { s.passStops(ctx, client) })
	working.Go(func() { s.passOutgoing(ctx, client, run) })
	working.Go(func() { s.passTakeOvers(ctx, client) })
	working.Go(func() { s.keepPlugged(ctx, client, process) })
	working.Go(func() { s.keepLinked(ctx, client) })
	working.Go(func() { s.keepSized(ctx, client) })
	working.Go(func() { s.keepRated(ctx, client, process) })
	working.Go(func() { s.keepPoliced(ctx, process) })
	working.Go(func() { s.keepGrown(ctx, client) })
	working.Go(func() { s.keepThawed(ctx, client) })
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
		if state.GetLifecycle().Final() {
			return nil
		}
	}
}
