package handler

import (
	"context"
	"errors"
	"fmt"
	"path"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
)

// makeHostDisks makes those images of hostDisk volumes that are to be made: they lie in directories of the node that
// the launcher's user can mostly not write. One that is there already keeps its owner.
func (s *session) makeHostDisks(ctx context.Context, vmi *v1.VirtualMachineInstance, process *podfs.Process) error {
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		disk := volume.HostDisk
		if disk == nil {
			continue
		}
		size := int64(0)
		if disk.Type == v1.HostDiskExistsOrCreate {
			size = disk.Capacity.Value()
		}
		err := s.do(ctx, volumeStep(volume.Name), func() error {
			return process.EnsureImage(path.Join(names.ClaimsDir, volume.Name), path.Base(disk.Path), size)
		})
		if errors.Is(err, errStuck) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			return grpcstatus.Error(codes.FailedPrecondition,
				fmt.Sprintf("volume %q: hostDisk %s: %v", volume.Name, disk.Path, err))
		}
	}
	return nil
}
