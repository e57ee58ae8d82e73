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

// OpenIncoming opens the run directory of the launcher that waits for a migration from a node.
func (r *Reconciler) OpenIncoming(uid types.UID, from string) (migrationproxy.Run, error) {
	pod, waits := r.waiting(uid, from)
	if !waits {
		return nil, fmt.Errorf("no launcher on node %s waits for migration %s from node %s", r.Node.Name, uid, from)
	}
	run, err := podfs.OpenRun(r.Node.PodsDir, pod)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// waiting returns the pod of the launcher that waits for a migration from a node.
func (r *Reconciler) waiting(migration types.UID, from string) (types.UID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		ms := s.latest().Status.MigrationState
		if ms != nil && ms.MigrationUID == migration && ms.SourceNode == from && ms.TargetNode == r.Node.Name &&
			s.observation().Prepared && !migrations.Over(ms) {
			return s.target.Pod, true
		}
	}
	return "", false
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
