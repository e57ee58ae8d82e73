package launcher

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// Stats implements the contract.
func (s *service) Stats(ctx context.Context, _ *pb.StatsRequest) (*pb.StatsResponse, error) {
	if !s.guest.exists() {
		return nil, status.Error(codes.FailedPrecondition, "the guest has not been started")
	}
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	conn, err := s.guest.connection(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	stats, err := conn.Stats(ctx)
	if errors.Is(err, hypervisor.ErrNoDomain) {
		return nil, status.Error(codes.FailedPrecondition, "the guest does not run any more")
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	out := &pb.StatsResponse{
		CpuTime: stats.CPUTime, Vcpus: stats.VCPUs,
		MemoryGuest: stats.MemoryGuest, MemoryUsed: stats.MemoryUsed, MemoryResident: stats.MemoryResident,
	}
	for _, i := range stats.Interfaces {
		out.Interfaces = append(out.Interfaces, &pb.StatsResponse_Interface{Name: i.Name, Received: i.Received, Sent: i.Sent})
	}
	for _, d := range stats.Disks {
		out.Disks = append(out.Disks, &pb.StatsResponse_Disk{
			Name: d.Name, Read: d.Read, Written: d.Written, ReadRequests: d.ReadRequests, WriteRequests: d.WriteRequests,
		})
	}
	return out, nil
}
