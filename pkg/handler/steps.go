package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// stepLimit is the time that the file systems of a pod may take for one step of its session.
	stepLimit = 30 * time.Second
	// stepGrace is the time in which a step must end whose session ends.
	stepGrace = time.Second
	// stuckPerPod and stuckPerNode bound the steps that were given up and have not returned. Each occupies a thread of
	// virt-handler, and Go allows 10000.
	stuckPerPod, stuckPerNode = 4, 1024
)

// errStuck marks a step that was given up, or one that was not begun because of those that were.
var errStuck = errors.New("the storage does not answer")

// steps counts what sessions do with files of their launchers' pods. A file system whose server does not answer (NFS,
// FUSE) holds a system call up, and nothing ends that. So each step has a goroutine of its own, which its session
// gives up after a while. The step is stuck until its system call returns. It is not begun a second time, and no pod
// has more than stuckPerPod: its VMI says why it waits, and the sessions of other pods go on.
type steps struct {
	mu    sync.Mutex
	stuck map[stepKey]time.Time // when each began
	pods  map[types.UID]int     // how many of stuck
}

// stepKey names a step of a pod's session.
type stepKey struct {
	pod  types.UID
	what string
}

// refuse returns why a step must not begin now; nil when it may.
func (s *steps) refuse(key stepKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.stuck[key]; is {
		return stuckAt(key.what)
	}
	if s.pods[key.pod] >= stuckPerPod {
		return fmt.Errorf("%s: waits for %d other steps of the pod: %w", key.what, stuckPerPod, errStuck)
	}
	if len(s.stuck) >= stuckPerNode {
		return fmt.Errorf("%s: waits for %d steps of other pods of the node: %w", key.what, stuckPerNode, errStuck)
	}
	return nil
}

func (s *steps) add(key stepKey, begun time.Time) {
	if s.stuck == nil {
		s.stuck, s.pods = map[stepKey]time.Time{}, map[types.UID]int{}
	}
	s.stuck[key] = begun
	s.pods[key.pod]++
}

func (s *steps) remove(key stepKey) {
	delete(s.stuck, key)
	if s.pods[key.pod]--; s.pods[key.pod] <= 0 {
		delete(s.pods, key.pod)
	}
}

// count returns how many steps are stuck.
func (s *steps) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stuck)
}

// step calls f, which uses files of the launcher's pod, and stops waiting for it after stepLimit or when ctx is done.
// f itself goes on then, so it must not change its caller's variables; it gets no context. A result that comes too
// late is closed if it is an io.Closer. what names the step in errors; steps that must not overlap have the same name.
func step[T any](ctx context.Context, s *session, what string, f func() (T, error)) (T, error) {
	limit, cancel := context.WithTimeoutCause(ctx, s.node.stepLimit, errStuck)
	defer cancel()
	return attempt(limit, s, what, f)
}

// attempt does what step does, without stepLimit.
func attempt[T any](ctx context.Context, s *session, what string, f func() (T, error)) (T, error) {
	var none T
	all, key, begun := &s.node.steps, stepKey{s.target.Pod, what}, time.Now()
	if err := all.refuse(key); err != nil {
		return none, err
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	over, stuck := false, false // guarded by all.mu
	process := s.useProcess()
	go func() {
		value, err := f()
		process.free()
		all.mu.Lock()
		over = true
		late := stuck
		if late {
			all.remove(key)
		}
		all.mu.Unlock()
		if !late {
			done <- result{value, err}
			return
		}
		s.log.Info("storage answers again", "step", what, "after", time.Since(begun).Round(time.Second))
		if closer, ok := any(value).(io.Closer); ok && err == nil {
			_ = closer.Close() // nobody has used it
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	if !errors.Is(context.Cause(ctx), errStuck) { // it may be about to end
		grace := time.NewTimer(stepGrace)
		defer grace.Stop()
		select {
		case r := <-done:
			return r.value, r.err
		case <-grace.C:
		}
	}
	all.mu.Lock()
	if over {
		all.mu.Unlock()
		r := <-done
		return r.value, r.err
	}
	stuck = true
	all.add(key, begun)
	all.mu.Unlock()
	s.log.Warn("storage does not answer", "step", what, "for", time.Since(begun).Round(time.Second))
	if cause := context.Cause(ctx); !errors.Is(cause, errStuck) {
		return none, fmt.Errorf("%s: %w", what, cause)
	}
	return none, stuckAt(what)
}

// stuckAt returns the error that names a stuck step. It stays the same as long as that is so, since it is written into
// the VMI's status.
func stuckAt(what string) error {
	return fmt.Errorf("%s: %w; it is tried again once it does", what, errStuck)
}

// do does what step does, for functions without a result.
func (s *session) do(ctx context.Context, what string, f func() error) error {
	_, err := step(ctx, s, what, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// volumeStep names what is done with a volume.
func volumeStep(volume string) string { return fmt.Sprintf("volume %q", volume) }

// lease calls close when its last user has released it. It begins with one user. A nil *lease closes nothing.
type lease struct {
	close func()

	mu    sync.Mutex
	users int
}

func newLease(closing func()) *lease { return &lease{close: closing, users: 1} }

func (l *lease) use() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
}

func (l *lease) free() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.users--
	last := l.users == 0
	l.mu.Unlock()
	if last {
		l.close()
	}
}

// useProcess keeps the launcher's process from being released until the lease is freed; nil while there is none.
func (s *session) useProcess() *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		s.held.use()
	}
	return s.held
}
