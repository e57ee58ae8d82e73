package handler

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/handler/migration"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/status"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/migrations"
)

// cancelPatience is how long a launcher may take to end a migration that was cancelled. Then its connections
// are cut: the other side may not answer, for which libvirt would wait.
const cancelPatience = 10 * time.Second

// retryCancel is the pause between two attempts to cancel.
const retryCancel = time.Second

// departure is a migration away from here that a session is asked to make, or to give up.
type departure struct {
	uid types.UID
	// node is where the guest goes, address that of its virt-handler, host:port.
	node    string
	address string
	cancel  bool
	limits  limits
}

// departureOf is what a VMI's status asks of the node that the guest is on; zero when nothing.
func departureOf(vmi *v1.VirtualMachineInstance, node string) departure {
	ms := vmi.Status.MigrationState
	if ms == nil || ms.MigrationUID == "" || migrations.Over(ms) || ms.SourceNode != node {
		return departure{}
	}
	d := departure{uid: ms.MigrationUID, node: ms.TargetNode, cancel: ms.AbortRequested || vmi.DeletionTimestamp != nil, limits: limitsOf(vmi)}
	if ms.TargetNodeAddress == "" {
		if d.cancel {
			return d
		}
		return departure{}
	}
	for text := range ms.TargetDirectMigrationNodePorts {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil {
			d.address = net.JoinHostPort(ms.TargetNodeAddress, strconv.FormatUint(port, 10))
		}
	}
	return d
}

// left ends the session of a VMI that is not this node's any more. While the launcher still makes the
// migration that took the guest away, its connections must stay: cut, they would bring the guest back to
// life here, beside the one that has moved. Should that have happened, the one here is ended.
func (r *Reconciler) left(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	r.mu.Lock()
	s := r.sessions[key]
	r.mu.Unlock()
	if s == nil {
		r.drop(key)
		return reconcile.Result{}, nil
	}
	seen := s.observation()
	r.tellProgress(ctx, s)
	account := seen.Guest.GetMigration()
	switch {
	case account == nil || !seen.LostAt.IsZero() || isFinal(seen.Guest):
	case account.Phase == launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING && !handing(seen.Guest):
		return reconcile.Result{}, nil // its end makes another pass
	default:
		elsewhere, err := r.elsewhere(ctx, key, s.target.UID)
		if err != nil {
			return reconcile.Result{}, err
		}
		if elsewhere {
			s.log.Info("the guest runs on another node and was left here, too: it is ended here", "runs", !handing(seen.Guest))
			s.stop(r.Node.Now())
			return reconcile.Result{}, nil
		}
	}
	r.drop(key)
	return reconcile.Result{}, nil
}

// elsewhere asks the API server whether a VMI runs on another node.
func (r *Reconciler) elsewhere(ctx context.Context, key types.NamespacedName, uid types.UID) (bool, error) {
	var found v1.VirtualMachineInstanceList
	err := r.Live.List(ctx, &found, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
	if err != nil {
		return false, fmt.Errorf("get VirtualMachineInstance: %w", err)
	}
	for i := range found.Items {
		vmi := &found.Items[i]
		if vmi.Name == key.Name && vmi.UID == uid && !vmi.IsFinal() {
			return vmi.Status.NodeName != "" && vmi.Status.NodeName != r.Node.Name, nil
		}
	}
	return false, nil
}

// depart asks for a migration, or for its end.
func (s *session) depart(d departure) {
	s.mu.Lock()
	same := s.departure == d
	s.departure = d
	s.mu.Unlock()
	if !same {
		s.wakeDeparture()
	}
}

func (s *session) wakeDeparture() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.departing)
	s.departing = make(chan struct{})
}

func (s *session) departureRequest() (departure, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departure, s.departing
}

// passDepartures hands each migration to the launcher and keeps its sockets as long as it is under way. The
// launcher's account of migrations is known when it begins.
func (s *session) passDepartures(ctx context.Context, client launcherpb.LauncherClient, run *podfs.Run) {
	var (
		sockets   *migration.Outgoing
		begun     types.UID
		cancelled time.Time // when it was first asked for
	)
	closeSockets := func() {
		if sockets != nil {
			sockets.Close()
			sockets = nil
		}
	}
	defer closeSockets()
	for {
		want, next := s.departureRequest()
		account := s.observation().Guest.GetMigration()
		known := want.uid != "" && (begun == want.uid || account.GetUid() == string(want.uid))
		over := account.GetUid() == string(want.uid) && account.GetPhase() != launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING
		var again <-chan time.Time
		switch {
		case want.uid == "", over:
			closeSockets()
		case !known && want.cancel:
			begun = want.uid
			s.departed(want.uid, "cancelled before it began", true)
		case !known:
			closeSockets()
			begun, cancelled = want.uid, time.Time{}
			var err error
			if sockets, err = s.leave(ctx, client, run, want); err != nil {
				if grpcstatus.Code(err) == codes.Unavailable || ctx.Err() != nil {
					return // the launcher is lost, and with it this session's connection
				}
				s.departed(want.uid, describe(err), false)
			} else {
				s.publish(false, func(o *observation) { o.Departure = nil })
			}
		case handing(s.observation().Guest):
			// It may run on the other side: there is nothing to cancel any more. A virt-handler that has just started opens
			// the way to there again.
			if sockets == nil && want.address != "" {
				var err error
				if sockets, err = s.leave(ctx, client, run, want); err != nil && ctx.Err() == nil {
					s.log.Warn("no way to the other launcher yet", "err", describe(err))
					again = time.After(retryCancel)
				}
			}
		case account.GetMode() == launcherpb.MigrationMode_MIGRATION_MODE_POST_COPY:
			// The guest runs on the other side and needs what is here: there is nothing to cancel any more.
		case want.cancel && account.GetUid() == string(want.uid):
			if _, err := client.CancelMigration(ctx, &launcherpb.CancelMigrationRequest{Uid: string(want.uid)}); err != nil && ctx.Err() == nil {
				s.log.Info("migration not cancelled yet", "err", describe(err))
			}
			if cancelled.IsZero() {
				cancelled = s.node.Now()
			}
			if s.node.Now().Sub(cancelled) > cancelPatience {
				closeSockets()
			}
			again = time.After(retryCancel)
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		case <-again:
		}
	}
}

// leave opens the sockets of a migration and has the launcher begin it.
func (s *session) leave(ctx context.Context, client launcherpb.LauncherClient, run *podfs.Run, want departure) (*migration.Outgoing, error) {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return s.node.Dial(ctx, want.node, address)
	}
	sockets, err := migration.Listen(run, dial, want.address, want.uid, s.log)
	if err != nil {
		return nil, err
	}
	if _, err := client.Migrate(ctx, &launcherpb.MigrateRequest{Uid: string(want.uid), Limits: want.limits.message()}); err != nil {
		sockets.Close()
		return nil, err
	}
	s.log.Info("guest leaves", "migration", want.uid, "to", want.address)
	return sockets, nil
}

// departed publishes a migration that failed without the launcher's doing.
func (s *session) departed(uid types.UID, reason string, cancelled bool) {
	s.log.Warn("guest stays", "migration", uid, "reason", reason)
	s.publish(true, func(o *observation) {
		o.Departure = &status.Departure{UID: uid, Failed: true, Reason: reason, Cancelled: cancelled}
	})
}

// modes are the words of the API.
var modes = map[launcherpb.MigrationMode]v1.MigrationMode{
	launcherpb.MigrationMode_MIGRATION_MODE_PRE_COPY:  v1.MigrationPreCopy,
	launcherpb.MigrationMode_MIGRATION_MODE_POST_COPY: v1.MigrationPostCopy,
	launcherpb.MigrationMode_MIGRATION_MODE_PAUSED:    v1.MigrationPaused,
}

// departureSeen is what is known of a VMI's migration away from here.
func (o observation) departureSeen() *status.Departure {
	account := o.Guest.GetMigration()
	if account == nil {
		return o.Departure
	}
	if o.Departure != nil && string(o.Departure.UID) != account.Uid {
		return o.Departure // it came later: the launcher's would have replaced it
	}
	d := &status.Departure{
		UID:       types.UID(account.Uid),
		Failed:    account.Phase == launcherpb.MigrationPhase_MIGRATION_PHASE_FAILED,
		Reason:    account.Error,
		Cancelled: account.Cancelled,
		Begun:     account.StartedAt.AsTime(),
		Mode:      modes[account.Mode],
	}
	return d
}
