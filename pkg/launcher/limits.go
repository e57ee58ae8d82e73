package launcher

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// limitsTimeout bounds a change of the limits of a guest's disks, which QEMU makes at once.
const limitsTimeout = 30 * time.Second

// SetDiskLimits implements the contract.
func (s *service) SetDiskLimits(ctx context.Context, req *pb.SetDiskLimitsRequest) (*pb.SetDiskLimitsResponse, error) {
	s.plugging.Lock()
	defer s.plugging.Unlock()
	// As AttachVolume.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitsTimeout)
	defer cancel()
	vmi := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(req.VmiJson, vmi); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "read the VMI: %v", err)
	}
	conn, now, err := s.domainNow(ctx)
	if err != nil {
		return nil, err
	}
	limits, failed := qos.Of(vmi.Annotations).Disks, error(nil)
	for i := range vmi.Spec.Domain.Devices.Disks {
		d := &vmi.Spec.Domain.Devices.Disks[i]
		target, there := now.Disks[domain.VolumeAlias(d.Name)]
		if !there || d.CDRom != nil || d.LUN != nil {
			continue
		}
		if err := conn.LimitDisk(ctx, target, hypervisor.DiskLimits(limits[d.Name])); err != nil && failed == nil {
			code := status.Convert(startError(vmi, nil, err))
			failed = status.Errorf(code.Code(), "disk %q: %s", d.Name, code.Message())
		}
	}
	if failed != nil {
		s.options.Log.Warn("cannot limit the disks", "err", failed)
		return nil, failed
	}
	return &pb.SetDiskLimitsResponse{}, nil
}
