package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

// node mounts volumes in the mount namespace of a node. Several nodes that mount one volume have one file system, for
// it is one kernel.
type node struct {
	*Driver
	csi.UnimplementedNodeServer
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId: n.Node, AccessibleTopology: &csi.Topology{Segments: map[string]string{TopologyKey: n.Node}},
	}, nil
}

func (n *node) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if !n.plain() {
		types = append(types, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	response := new(csi.NodeGetCapabilitiesResponse)
	for _, t := range types {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}

func (n *node) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	v, device, err := n.attach(r)
	if err != nil {
		return nil, err
	}
	if v.FSType == "" {
		return new(csi.NodeStageVolumeResponse), nil
	}
	path := r.GetStagingTargetPath()
	mounted, err := isMountPoint(path)
	if err != nil {
		return nil, err
	}
	if !mounted {
		if err := os.MkdirAll(path, 0o750); err != nil {
			return nil, err
		}
		if err := n.Pool.Resize(v.ID, device, ""); err != nil {
			return nil, err
		}
		if err := pool.Mount(device, path, v.FSType, r.GetVolumeCapability().GetMount().GetMountFlags()); err != nil {
			return nil, err
		}
	}
	return new(csi.NodeStageVolumeResponse), n.Pool.Resize(v.ID, device, path)
}

// attach gives a volume its device, unless the volume cannot be used as a request has it.
func (n *node) attach(r interface {
	GetVolumeId() string
	GetVolumeCapability() *csi.VolumeCapability
},
) (v pool.Volume, device string, err error) {
	capability := r.GetVolumeCapability()
	if capability.GetBlock() == nil && capability.GetMount() == nil {
		return v, "", status.Error(codes.InvalidArgument, "volume_capability is missing")
	}
	if v, err = n.Pool.Volume(r.GetVolumeId()); err != nil {
		return v, "", err
	}
	if (capability.GetBlock() != nil) != (v.FSType == "") {
		return v, "", status.Errorf(codes.InvalidArgument, "volume_capability: volume %q was made with file system %q",
			v.ID, v.FSType)
	}
	return n.Pool.Attach(v.ID, n.Node)
}

func (n *node) NodeUnstageVolume(
	_ context.Context, r *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := unmount(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return new(csi.NodeUnstageVolumeResponse), n.Pool.Detach(r.GetVolumeId(), n.Node)
}

func (n *node) NodePublishVolume(
	_ context.Context, r *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	err := required("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath(), "staging_target_path",
		r.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	v, device, err := n.attach(r) // NodeStageVolume has attached it already: this finds the device
	if err != nil {
		return nil, err
	}
	target := r.GetTargetPath()
	if r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		other, err := mountedElsewhere(device, target, r.GetStagingTargetPath())
		if err != nil {
			return nil, err
		}
		if other != "" {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %q is for one pod, and another has it at %s",
				v.ID, other)
		}
	}
	mounted, err := isMountPoint(target)
	if err != nil || mounted {
		return new(csi.NodePublishVolumeResponse), err
	}
	source := device
	if v.FSType == "" {
		err = makeFile(target)
	} else {
		source = r.GetStagingTargetPath()
		err = os.MkdirAll(target, 0o750)
	}
	if err != nil {
		return nil, err
	}
	return new(csi.NodePublishVolumeResponse), bind(source, target, r.GetReadonly())
}

func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

func bind(source, target string, readonly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	if !readonly {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("make %s read-only: %w", target, err), unmount(target))
	}
	return nil
}

func (n *node) NodeUnpublishVolume(
	_ context.Context, r *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := unmount(r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return new(csi.NodeUnpublishVolumeResponse), nil
}

func (n *node) NodeExpandVolume(
	_ context.Context, r *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	if n.plain() {
		return nil, status.Error(codes.Unimplemented, "this driver cannot expand volumes")
	}
	v, device, err := n.Pool.Attach(r.GetVolumeId(), n.Node)
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Size}, n.Pool.Resize(v.ID, device, r.GetVolumePath())
}

func (n *node) NodeGetVolumeHealth(
	_ context.Context, r *csi.NodeGetVolumeHealthRequest,
) (*csi.NodeGetVolumeHealthResponse, error) {
	health, err := n.health(r.GetVolumeId())
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, err
}

func (n *node) NodeGetVolumeStats(
	_ context.Context, r *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	v, err := n.Pool.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	mounted, err := isMountPoint(r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if !mounted {
		return nil, status.Errorf(codes.NotFound, "volume %q is not at %s", v.ID, r.GetVolumePath())
	}
	if v.FSType == "" {
		bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: v.Size}
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes}}, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &st); err != nil {
		return nil, fmt.Errorf("measure %s: %w", r.GetVolumePath(), err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(st.Blocks) * st.Bsize, Available: int64(st.Bavail) * st.Bsize,
			Used: int64(st.Blocks-st.Bfree) * st.Bsize,
		},
		{
			Unit: csi.VolumeUsage_INODES, Total: int64(st.Files), Available: int64(st.Ffree),
			Used: int64(st.Files - st.Ffree),
		},
	}}, nil
}
