package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// growTimeout bounds the growth of a guest's disks: an image is made larger without a write, and QEMU tells the guest.
const growTimeout = 30 * time.Second

// GrowVolumes implements the contract.
func (s *service) GrowVolumes(ctx context.Context, req *pb.GrowVolumesRequest) (*pb.GrowVolumesResponse, error) {
	s.plugging.Lock()
	defer s.plugging.Unlock()
	// As AttachVolume.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), growTimeout)
	defer cancel()
	vmi := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(req.VmiJson, vmi); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "read the VMI: %v", err)
	}
	conn, now, err := s.domainNow(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.GrowVolumesResponse{Sizes: map[string]int64{}, Failures: map[string]string{}}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		alias := domain.VolumeAlias(v.Name)
		target, there := now.Disks[alias]
		if !there || now.Empty[alias] {
			continue
		}
		size, err := s.grow(ctx, conn, vmi, v, target)
		if errors.Is(err, hypervisor.ErrNoDomain) {
			return nil, status.Error(codes.FailedPrecondition, notHere)
		}
		if err != nil {
			s.options.Log.Warn("cannot grow a disk", "volume", v.Name, "err", err)
			out.Failures[v.Name] = err.Error()
		}
		if size > 0 {
			out.Sizes[v.Name] = size
		}
	}
	return out, nil
}

// grow brings one disk to the size of its claim, and returns the size that it has for the guest then, also with an
// error if it is known.
func (s *service) grow(
	ctx context.Context, conn hypervisor.Connection, vmi *v1.VirtualMachineInstance, v *v1.Volume, target string,
) (int64, error) {
	size, err := conn.DiskSize(ctx, target)
	if err != nil || !disk.Grows(&vmi.Spec, v) {
		return size, err
	}
	want, err := disk.GrownSize(vmi, v, s.options.Disks)
	if err != nil {
		return size, fmt.Errorf("look at the image: %w", err)
	}
	want = max(want, size)
	if want == size && !s.strange(vmi, v.Name) {
		return size, nil
	}
	if err := conn.GrowDisk(ctx, target, want); err != nil {
		return size, err
	}
	s.toldSize[v.Name] = true
	if want > size {
		s.options.Log.Info("a disk has grown", "volume", v.Name, "before", size, "now", want)
	}
	return want, nil
}

// strange reports whether the guest may know another size of a disk than QEMU does: it has come from another QEMU,
// which had opened the image or device before that grew, and nobody has told it here.
func (s *service) strange(vmi *v1.VirtualMachineInstance, volume string) bool {
	mark, err := savedmemory.ResumeOf(vmi.Annotations)
	return (s.options.MigrationTarget || err == nil && mark != nil) && !s.toldSize[volume]
}

// growAtStart gives the images of a guest that is to boot the size of their claims. What cannot be grown keeps its
// size: virt-handler asks for it again once the guest runs, and says why. A guest that is resumed knows its disks as
// they were.
func (s *service) growAtStart(vmi *v1.VirtualMachineInstance) {
	if mark, err := savedmemory.ResumeOf(vmi.Annotations); err != nil || mark != nil {
		return
	}
	grown, err := disk.GrowImages(vmi, s.options.Disks)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.options.Log.Warn("cannot grow a disk before the start", "err", err)
	}
	for volume, size := range grown {
		s.options.Log.Info("a disk has grown", "volume", volume, "now", size)
	}
}
