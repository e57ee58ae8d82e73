package launcher

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// Screenshot implements the contract.
func (s *service) Screenshot(_ *pb.ScreenshotRequest, stream pb.Launcher_ScreenshotServer) error {
	if !s.guest.exists() {
		return status.Error(codes.FailedPrecondition, "the guest has not been started")
	}
	ctx, cancel := context.WithTimeout(stream.Context(), steerTimeout)
	defer cancel()
	conn, err := s.guest.connection(ctx)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	err = conn.Screenshot(ctx, pieces{stream})
	switch {
	case errors.Is(err, hypervisor.ErrNoDomain):
		return status.Error(codes.FailedPrecondition, notHere)
	case errors.Is(err, hypervisor.ErrNoScreen):
		return status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// pieces writes to a stream of messages.
type pieces struct{ stream pb.Launcher_ScreenshotServer }

func (p pieces) Write(b []byte) (int, error) {
	if err := p.stream.Send(&pb.ScreenshotPiece{Png: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}
