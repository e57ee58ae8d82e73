package launcher

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
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
		return nil, status.Error(codes.FailedPrecondition, notHere)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	out := statsResponse(stats)
	out.IllegalTransitions = s.guest.illegal()
	return out, nil
}

func statsResponse(stats hypervisor.Stats) *pb.StatsResponse {
	m := stats.Memory
	out := &pb.StatsResponse{
		CpuTime: stats.CPUTime, CpuUser: stats.CPUUser, CpuSystem: stats.CPUSystem, Vcpus: uint64(stats.Online()),
		MemoryGuest: stats.MemoryGuest, MemoryUsed: stats.MemoryUsed, MemoryResident: stats.MemoryResident,
		Memory: &pb.GuestMemory{
			Available: m.Available, Usable: m.Usable, Unused: m.Unused, Cached: m.Cached, SwapIn: m.SwapIn,
			SwapOut:     m.SwapOut,
			MajorFaults: m.MajorFaults, MinorFaults: m.MinorFaults, Maximum: m.Maximum,
		},
	}
	for i, v := range stats.VCPUs {
		out.VcpuTimes = append(out.VcpuTimes,
			&pb.StatsResponse_VCPU{Id: uint32(i), State: v.State, Time: v.Time, Wait: v.Wait, Delay: v.Delay})
	}
	for _, i := range stats.Interfaces {
		out.Interfaces = append(out.Interfaces, &pb.StatsResponse_Interface{
			Name: i.Name, Received: i.Received.Bytes, Sent: i.Sent.Bytes,
			ReceivedPackets: i.Received.Packets, ReceivedErrors: i.Received.Errors, ReceivedDropped: i.Received.Dropped,
			SentPackets: i.Sent.Packets, SentErrors: i.Sent.Errors, SentDropped: i.Sent.Dropped,
		})
	}
	for _, d := range stats.Disks {
		out.Disks = append(out.Disks, &pb.StatsResponse_Disk{
			Name: d.Name, Read: d.Read.Bytes, Written: d.Write.Bytes, ReadRequests: d.Read.Requests,
			WriteRequests: d.Write.Requests,
			ReadTime:      d.Read.Time, WriteTime: d.Write.Time, FlushRequests: d.Flush.Requests,
			FlushTime: d.Flush.Time,
		})
	}
	return out
}
