// Package usage reads what the guests of a node use, for `virtctl top` and for Prometheus. It asks all launchers side
// by side and waits for none of them: guests without an answer when the time is over are named as missing.
//
//	GET /v1/stats, /metrics ──► Reader.Read ──► launcher.Stats of each guest (one call at a time and guest)
//	                                       └──► launcher.AskAgent, once a minute, for the next reading
//
// Questions at the same time share their calls. A launcher that has not answered once is asked again only after a
// while, and never takes the place of one that does.
package usage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

const (
	// callTimeout bounds one launcher's answer.
	callTimeout = 3 * time.Second
	// fresh is the greatest age of an answer that is given again.
	fresh = 500 * time.Millisecond
	// atOnce is the number of launchers that are asked side by side, suspectsAtOnce the number of those among them that
	// did not answer the last time.
	atOnce, suspectsAtOnce = 32, 4
	// patience is the time for which a launcher that has not answered is not asked.
	patience = 20 * time.Second
	// MaxDevices bounds how many interfaces, disks, vCPUs and file systems a launcher may name.
	MaxDevices = 256
)

// Guest is a guest that can be asked.
type Guest struct {
	VMI types.NamespacedName
	// Pod is the launcher's; a guest that starts again has another.
	Pod      types.UID
	Launcher launcherpb.LauncherClient
	// Labels are the VMI's labels.
	Labels map[string]string
	// Limits are those of all that it reads, writes, receives and sends.
	Limits qos.Sums
	// DeviceLimits are those of each disk and interface that has some, as qos.Each writes them.
	DeviceLimits []string
	// Interfaces and Disks are names in the spec by those in the domain: taps, targets.
	Interfaces, Disks map[string]string
	// Migration is the progress of the guest's migration away; nil when it does not move.
	Migration *launcherpb.MigrationProgress
	// Agent says that the guest runs with an agent that can be asked.
	Agent bool
}

// Reading is one reading of what a guest uses.
type Reading struct {
	Guest
	Stats *launcherpb.StatsResponse
	// Time is when Stats was read.
	Time time.Time
	// Filesystems are the file systems that the agent named last.
	Filesystems []v1.VirtualMachineInstanceFileSystem
	// Load is the agent's last report for 1, 5 and 15 minutes; empty when it reports none.
	Load []float64
}

// Reader asks the launchers of a node. The zero value needs Guests, Log and Now.
type Reader struct {
	// Guests returns the guests to ask now.
	Guests func() []Guest
	Log    *slog.Logger
	Now    func() time.Time

	once             sync.Once
	ctx              context.Context
	cancel           context.CancelFunc
	turns, suspected chan struct{}
	working          sync.WaitGroup

	mu sync.Mutex
	// calls are the last of each pod, files what the agents said last.
	calls map[types.UID]*call
	files map[types.UID]*files
}

// call is one question to a launcher. done is closed when the others are final.
type call struct {
	done   chan struct{}
	asked  time.Time
	at     time.Time
	answer *launcherpb.StatsResponse
	err    error
}

func (r *Reader) init() {
	r.once.Do(func() {
		r.ctx, r.cancel = context.WithCancel(context.Background())
		r.turns, r.suspected = make(chan struct{}, atOnce), make(chan struct{}, suspectsAtOnce)
		r.calls, r.files = map[types.UID]*call{}, map[types.UID]*files{}
	})
}

// Close ends all calls and waits for them; later reads get nothing.
func (r *Reader) Close() {
	r.init()
	r.mu.Lock()
	r.cancel() // and from here on none begins
	r.mu.Unlock()
	r.working.Wait()
}

// Read returns what the guests for which want holds use (nil is all), those that answer before ctx ends, in no order,
// and those that did not. With agents it looks after their file systems, too.
func (r *Reader) Read(
	ctx context.Context, want func(types.NamespacedName) bool, agents bool,
) (readings []Reading, missing []types.NamespacedName) {
	r.init()
	guests := r.Guests()
	calls := make([]*call, len(guests))
	r.mu.Lock()
	r.forget(guests)
	now := r.Now()
	for i := range guests {
		if r.ctx.Err() != nil {
			break
		}
		if want == nil || want(guests[i].VMI) {
			calls[i] = r.ask(&guests[i], now)
		}
		if agents && guests[i].Agent {
			r.refresh(&guests[i], now)
		}
	}
	r.mu.Unlock()
	for i, c := range calls {
		if c == nil {
			continue
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			select { // It may be there all the same.
			case <-c.done:
			default:
				missing = append(missing, guests[i].VMI)
				continue
			}
		}
		if c.err != nil {
			if slow(c) { // else there is no guest yet, or none any more
				missing = append(missing, guests[i].VMI)
			}
			continue
		}
		said := r.said(guests[i].Pod)
		readings = append(readings,
			Reading{Guest: guests[i], Stats: c.answer, Time: c.at, Filesystems: said.list, Load: said.load})
	}
	return readings, missing
}

// forget drops what is known of guests that are not there any more.
func (r *Reader) forget(guests []Guest) {
	here := make(map[types.UID]bool, len(guests))
	for i := range guests {
		here[guests[i].Pod] = true
	}
	for pod := range r.calls {
		if !here[pod] {
			delete(r.calls, pod)
		}
	}
	for pod := range r.files {
		if !here[pod] {
			delete(r.files, pod)
		}
	}
}

// ask returns the call to wait for: the one that is under way, the last one if it is fresh, or a new one.
func (r *Reader) ask(guest *Guest, now time.Time) *call {
	turns := r.turns
	if last := r.calls[guest.Pod]; last != nil {
		select {
		case <-last.done:
		default:
			return last
		}
		if last.err == nil && now.Sub(last.at) < fresh ||
			last.err != nil && now.Sub(last.asked) < patience && slow(last) {
			return last
		}
		if last.err != nil {
			turns = r.suspected
		}
	}
	c := &call{done: make(chan struct{}), asked: now}
	r.calls[guest.Pod] = c
	launcher, vmi := guest.Launcher, guest.VMI
	r.working.Go(func() {
		defer close(c.done)
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-r.ctx.Done():
			c.err = r.ctx.Err()
			return
		}
		ctx, cancel := context.WithTimeout(r.ctx, callTimeout)
		defer cancel()
		c.answer, c.err = launcher.Stats(ctx, &launcherpb.StatsRequest{})
		c.at = r.Now()
		if c.err != nil {
			r.Log.Info("guest left out of the statistics", "vmi", vmi.String(), "err", c.err)
			return
		}
		bound(c.answer)
	})
	return c
}

// bound drops what is more than a guest can have.
func bound(s *launcherpb.StatsResponse) {
	s.Interfaces = s.Interfaces[:min(len(s.Interfaces), MaxDevices)]
	s.Disks = s.Disks[:min(len(s.Disks), MaxDevices)]
	s.VcpuTimes = s.VcpuTimes[:min(len(s.VcpuTimes), MaxDevices)]
}
