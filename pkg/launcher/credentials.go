package launcher

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/credentials"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// recheck is the interval at which a credentialSync looks whether the kubelet has brought new Secrets, and tries again
// what failed.
const recheck = 5 * time.Second

// credentialSync keeps the guest's users as the plan says: when the agent connects, as after each boot of the guest,
// and when a Secret has changed.
type credentialSync struct {
	guest *guest
	dir   string
	log   *slog.Logger

	mu   sync.Mutex
	plan credentials.Plan
	wake chan struct{}
}

func newCredentialSync(g *guest, dir string, log *slog.Logger) *credentialSync {
	return &credentialSync{guest: g, dir: dir, log: log, wake: make(chan struct{}, 1)}
}

// set sets the plan.
func (k *credentialSync) set(p credentials.Plan) {
	k.mu.Lock()
	k.plan = p
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *credentialSync) current() credentials.Plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.plan
}

// run brings the guest's users to the plan until ctx ends. Without a plan it sleeps.
func (k *credentialSync) run(ctx context.Context) {
	var applied *credentials.Wanted // nil: the agent has not been asked since it connected
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		var again <-chan time.Time
		state, changed := k.guest.watch()
		plan := k.current()
		if plan.Empty() {
			changed = nil
		} else {
			again = tick.C
			if !state.AgentConnected {
				applied, again = nil, nil
			} else {
				applied = k.apply(ctx, plan, applied)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-changed:
		case <-again:
		}
	}
}

// apply brings the guest up to the Secrets, and gives what it has now: nil after a failure, so that all is done
// again.
func (k *credentialSync) apply(
	ctx context.Context, plan credentials.Plan, applied *credentials.Wanted,
) *credentials.Wanted {
	wanted, err := plan.Read(k.dir)
	if err == nil && applied != nil && reflect.DeepEqual(wanted, *applied) {
		return applied
	}
	if err == nil {
		var conn hypervisor.Connection
		if conn, err = k.guest.connection(ctx); err != nil {
			return nil // the launcher ends
		}
		before := credentials.Wanted{}
		if applied != nil {
			before = *applied
		}
		err = credentials.Apply(func(command string) (string, error) { return conn.Agent(ctx, command) },
			wanted, before)
	}
	if errors.Is(err, hypervisor.ErrNoAgent) || ctx.Err() != nil {
		return nil // not now
	}
	failure := ""
	if err != nil {
		failure = strings.ReplaceAll(err.Error(), "\n", "; ") // of several users
	}
	k.guest.update(func(s *pb.GuestState) {
		if s.AgentCredentials == nil || s.AgentCredentials.Failure != failure {
			k.log.Info("access credentials", "failure", failure)
		}
		s.AgentCredentials = &pb.AgentCredentials{Failure: failure}
	})
	if err != nil {
		return nil
	}
	return &wanted
}
