package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/virtkit/virtkit/pkg/names"
)

// failover is the longest that a cluster may be without a leader.
const failover = 15 * time.Second

// wire is a lock behind a network that can be cut: then a request ends with its context or after its time.
type wire struct {
	resourcelock.Interface
	writes atomic.Int32
	cut    atomic.Bool
}

func (w *wire) pass(ctx context.Context) error {
	if !w.cut.Load() {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(leaseTimeout):
		return errors.New("no answer in time")
	}
}

func (w *wire) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := w.pass(ctx); err != nil {
		return nil, nil, err
	}
	return w.Interface.Get(ctx)
}

func (w *wire) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := w.pass(ctx); err != nil {
		return err
	}
	w.writes.Add(1)
	return w.Interface.Create(ctx, record)
}

func (w *wire) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := w.pass(ctx); err != nil {
		return err
	}
	w.writes.Add(1)
	return w.Interface.Update(ctx, record)
}

// replica is a virt-controller as far as the lease is concerned.
type replica struct {
	*wire
	lock             *lease
	leading, stopped chan time.Time
	cancel           context.CancelFunc
	done             chan struct{}
}

// run starts a replica until the test ends.
func run(t *testing.T, api kubernetes.Interface, identity string) *replica {
	t.Helper()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, names.Namespace, names.VirtController,
		api.CoreV1(), api.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{
		wire: &wire{Interface: lock}, leading: make(chan time.Time, 1), stopped: make(chan time.Time, 1),
		done: make(chan struct{}),
	}
	r.lock = &lease{Interface: r.wire, now: time.Now}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: r.lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { r.leading <- time.Now() },
			OnStoppedLeading: func() { r.stopped <- time.Now() },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		elector.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// A leader that is killed, or whose node is cut off, says nothing. Another one leads within 15 s, but not before the
// old one has stopped. The electors' jitter is random, so that this is tried often; time is the test's.
func TestFailover(t *testing.T) {
	longest := time.Duration(0)
	for i := range 25 {
		synctest.Test(t, func(t *testing.T) {
			api := fake.NewClientset()
			first := run(t, api, "first")
			<-first.leading
			second := run(t, api, "second")
			time.Sleep(time.Minute + time.Duration(i)*37*time.Millisecond)
			first.cut.Store(true)
			began := time.Now()
			stopped, leads := <-first.stopped, <-second.leading
			if took := leads.Sub(began); took > failover {
				t.Errorf("nobody led for %v", took)
			} else {
				longest = max(longest, took)
			}
			if !stopped.Before(leads) {
				t.Errorf("two led for %v, %v after the cut", stopped.Sub(leads), leads.Sub(began))
			}
		})
	}
	t.Logf("the longest failover took %v", longest)
}

// A leader that is stopped in good order, as by a roll-out, hands over at once.
func TestLeaderGivesUpLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		first := run(t, api, "first")
		<-first.leading
		second := run(t, api, "second")
		time.Sleep(time.Minute)
		if err := second.lock.release(t.Context()); err != nil { // it has none
			t.Fatal(err)
		}
		began := time.Now()
		first.cancel()
		<-first.done
		if err := first.lock.release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := (<-second.leading).Sub(began); took > 2*time.Second {
			t.Errorf("nobody led for %v", took)
		}
	})
}

// A leader that is restarted in its pod goes on.
func TestRestartedLeaderGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		first := run(t, api, "first")
		<-first.leading
		first.cut.Store(true) // killed
		began := time.Now()
		again := run(t, api, "first")
		if took := (<-again.leading).Sub(began); took > time.Second {
			t.Errorf("nobody led for %v", took)
		}
	})
}

// An API server that is busy for a while costs nobody the lease; and a leader writes no more than every renewInterval.
func TestLeaderBearsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		first := run(t, api, "first")
		<-first.leading
		second := run(t, api, "second")
		for range 20 {
			time.Sleep(3 * time.Second)
			first.cut.Store(true)
			time.Sleep(renewDeadline - 2*leaseTimeout)
			first.cut.Store(false)
		}
		before := first.writes.Load()
		time.Sleep(time.Minute)
		if wrote, most := first.writes.Load()-before, int32(time.Minute/renewInterval)+1; wrote > most {
			t.Errorf("%d writes in a minute, want %d at most", wrote, most)
		}
		select {
		case <-first.stopped:
			t.Error("it has lost the lease")
		case <-second.leading:
			t.Error("another one leads")
		default:
		}
	})
}

// Whatever is made of the timings, only one may lead.
func TestLeaseTimings(t *testing.T) {
	if renewInterval+retryPeriod+renewDeadline >= leaseDuration {
		t.Error("a leader that cannot renew stops after another one has begun")
	}
	looks := time.Duration((1 + leaderelection.JitterFactor) * float64(retryPeriod))
	if most := looks + leaseDuration + looks; most > failover {
		t.Errorf("a failover may take %v", most)
	}
	if leaseDuration%time.Second != 0 {
		t.Error("leases have whole seconds")
	}
	if 2*leaseTimeout >= renewDeadline {
		t.Error("a request that hangs costs the lease")
	}
}
