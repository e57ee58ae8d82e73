package handler

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/migrationproxy"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// cancelPatience is the time in which a launcher must end a migration that was cancelled. Then its connections are cut:
// the target may not answer, for which libvirt would wait.
const cancelPatience = 10 * time.Second

// tidyPatience is the time for which the connections of a migration outlive it, for both libvirtd to end theirs.
const tidyPatience = time.Second

// retryCancel is the pause between two attempts to cancel.
const retryCancel = time.Second

// outgoing is a migration away from here that a session is asked to make, or to give up.
type outgoing struct {
	uid types.UID
	// node is the guest's target node, address its virt-handler's address, host:port.
	node    string
	address string
	cancel  bool
	limits  limits
}

// outgoingOf returns what a VMI's status asks of the node that the guest is on; zero when nothing.
func outgoingOf(vmi *v1.VirtualMachineInstance, node string) outgoing {
	ms := vmi.Status.MigrationState
	if ms == nil || ms.MigrationUID == "" || migrations.Over(ms) || ms.SourceNode != node {
		return outgoing{}
	}
	d := outgoing{
		uid: ms.MigrationUID, node: ms.TargetNode, limits: limitsOf(vmi),
		cancel: ms.AbortRequested || vmi.DeletionTimestamp != nil,
	}
	if ms.TargetNodeAddress == "" {
		if d.cancel {
			return d
		}
		return outgoing{}
	}
	for text := range ms.TargetDirectMigrationNodePorts {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil {
			d.address = net.JoinHostPort(ms.TargetNodeAddress, strconv.FormatUint(port, 10))
		}
	}
	return d
}

// setOutgoing asks for a migration, or for its end.
func (s *session) setOutgoing(d outgoing) {
	s.mu.Lock()
	same := s.outgoing == d
	s.outgoing = d
	s.mu.Unlock()
	if !same {
		s.wakeOutgoing()
	}
}

func (s *session) wakeOutgoing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.outgoingNews)
	s.outgoingNews = make(chan struct{})
}

func (s *session) outgoingRequest() (outgoing, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outgoing, s.outgoingNews
}

// passOutgoing hands each migration to the launcher and keeps its sockets as long as it is under way. The
// launcher's account of migrations is known when it begins.
func (s *session) passOutgoing(ctx context.Context, client launcherpb.LauncherClient, run *podfs.Run) {
	var (
		sockets   *migrationproxy.Outgoing
		begun     types.UID
		cancelled time.Time // when it was first asked for
	)
	closeSockets := func() {
		if sockets != nil {
			sockets.Close()
			sockets = nil
		}
	}
	defer func() {
		if sockets != nil && moved(s.observation().Guest) {
			// libvirt here still ends its connection to the other one.
			time.AfterFunc(tidyPatience, sockets.Close)
			return
		}
		closeSockets()
	}()
	for {
		want, next := s.outgoingRequest()
		account := s.observation().Guest.GetMigration()
		known := want.uid != "" && (begun == want.uid || account.GetUid() == string(want.uid))
		over := account.GetUid() == string(want.uid) &&
			account.GetPhase() != launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING
		var again <-chan time.Time
		switch {
		case account.GetPhase() == launcherpb.MigrationPhase_MIGRATION_PHASE_COMPLETED:
			// The session ends as well.
		case want.uid == "", over:
			closeSockets()
		case !known && want.cancel:
			begun = want.uid
			s.failOutgoing(want.uid, "cancelled before it began", true)
		case !known:
			closeSockets()
			begun, cancelled = want.uid, time.Time{}
			disks, err := volumemigration.Leaving(s.latest())
			if err == nil {
				err = copies(s.observation().Guest, disks)
			}
			if err == nil {
				sockets, err = s.leave(ctx, client, run, want, disks)
			}
			if err != nil {
				if grpcstatus.Code(err) == codes.Unavailable || ctx.Err() != nil {
					return // the launcher is lost, and with it this session's connection
				}
				s.failOutgoing(want.uid, describe(err), false)
			} else {
				s.publish(false, func(o *observation) { o.Outgoing = nil })
			}
		case handing(s.observation().Guest):
			// It may run on the other side: there is nothing to cancel any more. A virt-handler that has just started
			// opens the way to there again.
			if sockets == nil && want.address != "" {
				var err error
				if sockets, err = s.leave(ctx, client, run, want, nil); err != nil && ctx.Err() == nil {
					s.log.Warn("no way to the other launcher yet", "err", describe(err))
					again = time.After(retryCancel)
				}
			}
		case account.GetMode() == launcherpb.MigrationMode_MIGRATION_MODE_POST_COPY:
			// The guest runs on the other side and needs what is here: there is nothing to cancel any more.
		case account.GetCut() && account.GetUid() == string(want.uid):
			closeSockets()
		case want.cancel && account.GetUid() == string(want.uid):
			_, err := client.CancelMigration(ctx, &launcherpb.CancelMigrationRequest{Uid: string(want.uid)})
			if err != nil && ctx.Err() == nil {
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

// leave opens the sockets of a migration and has the launcher begin it. disks are those to be copied to other claims; a
// launcher that has begun does not ask again.
func (s *session) leave(
	ctx context.Context, client launcherpb.LauncherClient, run *podfs.Run, want outgoing,
	disks []volumemigration.Disk,
) (*migrationproxy.Outgoing, error) {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return s.node.Dial(ctx, want.node, address)
	}
	guards, err := s.guards()
	if err != nil {
		return nil, err
	}
	sockets, err := migrationproxy.Listen(run, dial, want.address, want.uid, guards, s.log)
	if err != nil {
		return nil, err
	}
	request := &launcherpb.MigrateRequest{Uid: string(want.uid), Limits: want.limits.message()}
	for _, d := range disks {
		request.Disks = append(request.Disks, &launcherpb.MovedDisk{
			Volume: d.Volume, Block: d.Block, Plugged: d.Plugged,
		})
	}
	if _, err = client.Migrate(ctx, request); err != nil {
		sockets.Close()
		return nil, err
	}
	s.log.Info("guest leaves", "migration", want.uid, "to", want.address)
	return sockets, nil
}

// errOldLauncher says why the disks of a guest cannot be copied to other claims.
var errOldLauncher = errors.New("the guest runs in a virt-launcher of an older version, which cannot copy disks to " +
	"other claims; migrate it first, or restart it")

// copies returns errOldLauncher where a guest's launcher does not know how to copy disks, or hotplugged ones.
func copies(guest *launcherpb.GuestState, disks []volumemigration.Disk) error {
	plugged := slices.ContainsFunc(disks, func(d volumemigration.Disk) bool { return d.Plugged })
	if len(disks) > 0 && !guest.GetCopiesDisks() || plugged && !guest.GetCopiesPluggedDisks() {
		return errOldLauncher
	}
	return nil
}

// failOutgoing publishes a migration that failed without the launcher's doing.
func (s *session) failOutgoing(uid types.UID, reason string, cancelled bool) {
	s.log.Warn("guest stays", "migration", uid, "reason", reason)
	s.publish(true, func(o *observation) {
		o.Outgoing = &vmistatus.Outgoing{UID: uid, Failed: true, Reason: reason, Cancelled: cancelled}
	})
}

// modes are the words of the API.
var modes = map[launcherpb.MigrationMode]v1.MigrationMode{
	launcherpb.MigrationMode_MIGRATION_MODE_PRE_COPY:  v1.MigrationPreCopy,
	launcherpb.MigrationMode_MIGRATION_MODE_POST_COPY: v1.MigrationPostCopy,
	launcherpb.MigrationMode_MIGRATION_MODE_PAUSED:    v1.MigrationPaused,
}

// outgoingSeen returns what is known of a VMI's migration away from here.
func (o observation) outgoingSeen() *vmistatus.Outgoing {
	account := o.Guest.GetMigration()
	if account == nil {
		return o.Outgoing
	}
	if o.Outgoing != nil && string(o.Outgoing.UID) != account.Uid {
		return o.Outgoing // it came later: the launcher's would have replaced it
	}
	d := &vmistatus.Outgoing{
		UID:       types.UID(account.Uid),
		Failed:    account.Phase == launcherpb.MigrationPhase_MIGRATION_PHASE_FAILED,
		Reason:    account.Error,
		Cancelled: account.Cancelled,
		Begun:     account.StartedAt.AsTime(),
		Mode:      modes[account.Mode],
	}
	return d
}
