package launcher

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// Pause implements the contract. A guest that a freeze has paused is its user's from now on.
func (s *service) Pause(ctx context.Context, _ *pb.PauseRequest) (*pb.PauseResponse, error) {
	want, do := hypervisor.Running, hypervisor.Connection.Suspend
	if s.guest.isHeld() {
		want, do = hypervisor.Paused, func(hypervisor.Connection, context.Context) error { s.guest.letGo(); return nil }
	}
	return &pb.PauseResponse{}, s.steer(ctx, want, do)
}

// Unpause implements the contract. It refuses to resume a guest that a freeze has paused: its snapshots would be of
// several moments.
func (s *service) Unpause(ctx context.Context, _ *pb.UnpauseRequest) (*pb.UnpauseResponse, error) {
	if s.guest.isHeld() {
		return nil, errHeld
	}
	return &pb.UnpauseResponse{}, s.steer(ctx, hypervisor.Paused, hypervisor.Connection.Resume)
}

// Reset implements the contract.
func (s *service) Reset(ctx context.Context, _ *pb.ResetRequest) (*pb.ResetResponse, error) {
	return &pb.ResetResponse{}, s.steer(ctx, hypervisor.Running, hypervisor.Connection.Reset)
}

// SoftReboot implements the contract.
func (s *service) SoftReboot(ctx context.Context, _ *pb.SoftRebootRequest) (*pb.SoftRebootResponse, error) {
	return &pb.SoftRebootResponse{}, s.steer(ctx, hypervisor.Running, hypervisor.Connection.Reboot)
}

// steerTimeout bounds the wait for libvirtd while it is being restarted.
const steerTimeout = 10 * time.Second

// steer does something to a guest that must be in the given state. The state is known to the callers
// (and to watchers) when it returns.
func (s *service) steer(
	ctx context.Context, want hypervisor.Run, do func(hypervisor.Connection, context.Context) error,
) error {
	if !s.guest.exists() {
		return status.Error(codes.FailedPrecondition, "the guest has not been started")
	}
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	conn, err := s.guest.connection(ctx)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if s.guest.handing() {
		return status.Error(codes.FailedPrecondition,
			"the guest is being handed over to another node, which has not said yet that it runs there")
	}
	d, err := conn.Domain(ctx)
	if err == nil && d.Run != want {
		return status.Error(codes.FailedPrecondition, wrongState(d.Run))
	}
	if err == nil {
		err = do(conn, ctx)
	}
	switch {
	case errors.Is(err, hypervisor.ErrNoDomain):
		return status.Error(codes.FailedPrecondition, notHere)
	case err != nil:
		return status.Error(codes.Internal, err.Error())
	}
	s.guest.refresh(ctx, conn, false)
	return nil
}

func wrongState(r hypervisor.Run) string {
	switch r {
	case hypervisor.Paused:
		return "the guest is paused"
	case hypervisor.Stopping:
		return "the guest is shutting down"
	}
	return "the guest is not paused"
}
