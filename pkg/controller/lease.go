package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/virtkit/virtkit/pkg/names"
)

// Timings of the lease. A replica that does not lead looks at it every retryPeriod, or up to 2.2 times that
// (leaderelection.JitterFactor), and takes it when it has not changed for leaseDuration. So when a leader vanishes
// without a word, right after it renewed, another one leads after
//
//	2.2 × 0.5 s until the other has seen the last renewal + 12 s + 2.2 × 0.5 s until it looks again = 14.2 s
//
// at most, if the API server answers at once. A leader that ends gives the lease up, and one that was restarted in its
// pod is known by its name; neither waits.
//
// A leader on a busy node keeps the lease as long as one renewal in renewDeadline gets through. It must stop before
// another one may begin: renewInterval + retryPeriod + renewDeadline < leaseDuration. It writes every renewInterval
// only; more writes would bring nothing.
const (
	leaseDuration = 12 * time.Second
	renewDeadline = 6 * time.Second
	retryPeriod   = 500 * time.Millisecond
	renewInterval = 5 * time.Second
	// leaseTimeout bounds a request, so that one that hangs leaves time for others before renewDeadline.
	leaseTimeout = 2 * time.Second
)

// newLease makes the lock on virt-controller's lease. It has connections of its own: whatever the KubeVirt resource
// says of how many requests there may be, and whatever else waits for an answer, the lease is renewed.
func newLease(cluster *rest.Config, identity string) (*lease, error) {
	cluster = rest.CopyConfig(cluster)
	cluster.RateLimiter, cluster.QPS = nil, -1
	cluster.Timeout = leaseTimeout
	// With HTTP/2 a request that has hung would be followed by others on the same connection.
	cluster.NextProtos = []string{"http/1.1"}
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, names.Namespace, names.VirtController,
		client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("make lease: %w", err)
	}
	return &lease{Interface: lock, now: time.Now}, nil
}

// lease is a lock whose holder writes it every renewInterval, however often it is asked to renew it. Otherwise those
// who look at the lease could not do so more often than its holder writes. The elector uses it from one goroutine.
type lease struct {
	resourcelock.Interface
	now func() time.Time
	// written is the record that this replica wrote last and, as far as it knows, still stands, and the time of that
	// write.
	written resourcelock.LeaderElectionRecord
	at      time.Time
}

// Update implements resourcelock.Interface.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	now := l.now()
	renewed := l.written
	renewed.RenewTime = record.RenewTime
	if !l.at.IsZero() && renewed == record && now.Sub(l.at) < renewInterval {
		return nil
	}
	l.at = time.Time{}
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	l.written, l.at = record, now
	return nil
}

// release gives the lease up. The elector could do it, too, but would also try when it could not renew, and only then
// say that it does not lead any more.
func (l *lease) release(ctx context.Context) error {
	record, _, err := l.Get(ctx)
	if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity != l.Identity() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("give up the lease: %w", err)
	}
	now := metav1.NewTime(l.now())
	free := resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now, LeaderTransitions: record.LeaderTransitions,
	}
	if err := l.Update(ctx, free); err != nil {
		return fmt.Errorf("give up the lease: %w", err)
	}
	return nil
}
