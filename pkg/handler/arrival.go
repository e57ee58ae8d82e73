package handler

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/handler/migration"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/status"
	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/migrations"
)

// arrive makes one pass over a VMI that runs elsewhere and is to come here: its launcher is prepared, and
// once the guest runs in it this node takes the VMI's status over.
func (r *Reconciler) arrive(ctx context.Context, vmi *v1.VirtualMachineInstance) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(vmi)
	ms := vmi.Status.MigrationState
	if vmi.IsFinal() || ms == nil || ms.TargetNode != r.Node.Name || migrations.Over(ms) {
		r.drop(key)
		return reconcile.Result{}, nil
	}
	pod, err := r.pod(ctx, r.Cached, vmi)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil {
		return r.release(ctx, vmi)
	}
	if pod.Name != ms.TargetPod {
		return reconcile.Result{}, nil // its event makes another pass
	}
	if r.stillLeaves(ctx, key, pod.UID) {
		return reconcile.Result{}, nil // the end of that makes another pass
	}
	s, _ := r.session(vmi, pod, time.Time{})
	if s == nil {
		return reconcile.Result{}, nil
	}
	seen := s.observation()
	if waits(seen.Guest) {
		return r.takeOver(ctx, vmi, s)
	}
	return reconcile.Result{}, r.write(ctx, vmi, status.Arrive(status.Input{
		VMI: vmi, Pod: pod, Guest: seen.Guest, Plan: seen.Plan, Failure: seen.Failure, Now: r.Node.Now(),
	}, status.Target{Node: r.Node.Name, Address: r.Node.Address, Port: r.Node.MigrationPort, Prepared: seen.Prepared}))
}

// stillLeaves reports that a guest which is to come back has not been let go yet by the launcher that it left. The
// connections of that migration must stay till then: see left.
func (r *Reconciler) stillLeaves(ctx context.Context, key types.NamespacedName, pod types.UID) bool {
	r.mu.Lock()
	s := r.sessions[key]
	r.mu.Unlock()
	if s == nil || s.target.Pod == pod {
		return false
	}
	r.tellProgress(ctx, s)
	seen := s.observation()
	return seen.LostAt.IsZero() && !isFinal(seen.Guest) && seen.Guest.GetMigration().GetPhase() == launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING
}

// Arriving opens the run directory of the launcher that waits for a migration from a node.
func (r *Reconciler) Arriving(uid types.UID, from string) (migration.Run, error) {
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

// waiting is the pod of the launcher that waits for a migration from a node.
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

// Leaving reports whether the guest of a pod has gone to another node, or is about to.
func (r *Reconciler) Leaving(pod types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if s.target.Pod != pod {
			continue
		}
		guest := s.observation().Guest
		return moved(guest) || guest.GetMigration().GetPhase() == launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING
	}
	return false
}

// Guest is a context that ends when the guest of a VMI is gone from this node; its cause is a *stream.CloseError which
// says why. It has ended when the guest is not here.
func (r *Reconciler) Guest(vmi types.NamespacedName) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[vmi]; s != nil {
		return s.guest
	}
	return gone
}

// gone is the context of a guest that is not here.
var gone = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(streams.ErrUnfollowed)
	return ctx
}()

// moved says that the guest runs on in another launcher.
func moved(guest *launcherpb.GuestState) bool {
	return guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_MIGRATED
}
