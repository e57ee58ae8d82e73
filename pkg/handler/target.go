package handler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/migrationproxy"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// OpenIncoming opens the run directory of the launcher that waits for a migration from a node. guards is what that node
// says of the guest's addresses; "" where it says nothing.
func (r *Reconciler) OpenIncoming(uid types.UID, from, guards string) (migrationproxy.Run, error) {
	s := r.waiting(uid, from)
	if s == nil {
		return nil, fmt.Errorf("no launcher on node %s waits for migration %s from node %s", r.Node.Name, uid, from)
	}
	if guards != "" {
		if err := s.admit(guards); err != nil {
			return nil, fmt.Errorf("the guest's addresses: %w", err)
		}
	}
	run, err := podfs.OpenRun(r.Node.PodsDir, s.target.Pod)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// waiting returns the session of the launcher that waits for a migration from a node; nil for none.
func (r *Reconciler) waiting(migration types.UID, from string) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		ms := s.latest().Status.MigrationState
		if ms != nil && ms.MigrationUID == migration && ms.SourceNode == from && ms.TargetNode == r.Node.Name &&
			s.observation().Prepared && !migrations.Over(ms) {
			return s
		}
	}
	return nil
}

// Leaving returns what reports whether the guest of a pod has gone to another node, or is about to; also when its VMI
// is not this node's any more.
func (r *Reconciler) Leaving(pod types.UID) func() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if s.target.Pod != pod {
			continue
		}
		return func() bool {
			guest := s.observation().Guest
			return moved(guest) || guest.GetMigration().GetPhase() == launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING
		}
	}
	return func() bool { return false }
}

// passTakeOvers has the launcher start a guest that was received.
func (s *session) passTakeOvers(ctx context.Context, client launcherpb.LauncherClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case paused := <-s.taking:
			if _, err := client.TakeOver(ctx, &launcherpb.TakeOverRequest{Paused: paused}); err != nil &&
				ctx.Err() == nil {
				s.log.Warn("guest not taken over yet", "err", describe(err))
			}
		}
	}
}
