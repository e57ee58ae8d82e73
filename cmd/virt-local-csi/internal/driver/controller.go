package driver

import (
	"context"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

// defaultSize is that of a volume whose size nobody says.
const defaultSize = 1 << 30

type controller struct {
	*Driver
	csi.UnimplementedControllerServer
}

func (c *controller) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY, csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if !c.plain() {
		types = append(types, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
			csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS, csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
			csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	}
	response := new(csi.ControllerGetCapabilitiesResponse)
	for _, t := range types {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}

func (c *controller) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := required("name", r.GetName()); err != nil {
		return nil, err
	}
	wanted, err := c.wanted(r)
	if err != nil {
		return nil, err
	}
	v, err := c.Pool.Create(ctx, wanted)
	if err != nil {
		return nil, err
	}
	if limit := r.GetCapacityRange().GetLimitBytes(); limit > 0 && v.Size > limit {
		return nil, status.Errorf(codes.AlreadyExists, "volume %q has %d bytes, and %d are the limit", v.Name, v.Size,
			limit)
	}
	return &csi.CreateVolumeResponse{Volume: asVolume(v)}, nil
}

// wanted returns the volume that a request is for.
func (c *controller) wanted(r *csi.CreateVolumeRequest) (pool.Volume, error) {
	v := pool.Volume{Name: r.GetName(), Parameters: r.GetParameters()}
	if len(r.GetMutableParameters()) > 0 {
		return v, status.Error(codes.InvalidArgument, "mutable_parameters: the driver has none")
	}
	fsType, err := c.fileSystem(r.GetVolumeCapabilities())
	if err != nil {
		return v, err
	}
	v.FSType = fsType
	switch place := r.GetParameters()[Placement]; place {
	case "", "any":
	case "node":
		if v.Node, err = oneNode(r); err != nil {
			return v, err
		}
	default:
		return v, status.Errorf(codes.InvalidArgument, "parameter %s: %q is none: use any or node", Placement, place)
	}
	v.Size, err = wantedSize(r.GetCapacityRange(), fsType)
	if err != nil {
		return v, err
	}
	if r.GetVolumeContentSource() == nil {
		return v, nil
	}
	if c.plain() {
		return v, status.Error(codes.InvalidArgument, "volume_content_source: this driver cannot clone")
	}
	v.Source = pool.Source{
		Volume:   r.GetVolumeContentSource().GetVolume().GetVolumeId(),
		Snapshot: r.GetVolumeContentSource().GetSnapshot().GetSnapshotId(),
	}
	if v.Source == (pool.Source{}) {
		return v, status.Error(codes.InvalidArgument, "volume_content_source: neither a volume nor a snapshot")
	}
	return v, nil
}

// wantedSize returns the size for a range: it is no less than required, and no more than the limit.
func wantedSize(r *csi.CapacityRange, fsType string) (int64, error) {
	bytes, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	if bytes < 0 || limit < 0 || limit > 0 && limit < bytes {
		return 0, status.Errorf(codes.InvalidArgument, "capacity_range: from %d to %d bytes is none", bytes, limit)
	}
	if bytes == 0 {
		bytes = defaultSize
		if limit > 0 {
			bytes = min(bytes, limit)
		}
	}
	size := pool.RoundUp(bytes, fsType)
	if limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "capacity_range: a volume of at most %d bytes cannot be: it would "+
			"have %d", limit, size)
	}
	return size, nil
}

// fileSystem finds the file system that volumes with such capabilities need, empty for a block volume, pool.AnyFS where
// none is named.
func (c *controller) fileSystem(capabilities []*csi.VolumeCapability) (string, error) {
	if len(capabilities) == 0 {
		return "", status.Error(codes.InvalidArgument, "volume_capabilities are missing")
	}
	found := map[string]bool{}
	for _, capability := range capabilities {
		switch {
		case capability.GetBlock() != nil:
			found[""] = true
		case capability.GetMount() == nil:
			return "", status.Error(codes.InvalidArgument, "volume_capabilities: neither mount nor block")
		case capability.GetMount().GetFsType() == "":
			found[pool.AnyFS] = true
		default:
			found[capability.GetMount().GetFsType()] = true
		}
	}
	for fsType := range found {
		if len(found) > 1 {
			return "", status.Error(codes.InvalidArgument,
				"volume_capabilities: a volume is block, or of one file system")
		}
		if !slices.Contains([]string{"", "ext4", "xfs", pool.AnyFS}, fsType) {
			return "", status.Errorf(codes.InvalidArgument, "file system %q: use ext4 or xfs", fsType)
		}
		return fsType, nil
	}
	return "", nil
}

// oneNode finds the node that a volume of one node is to be on, and refuses what several would need.
func oneNode(r *csi.CreateVolumeRequest) (string, error) {
	for _, capability := range r.GetVolumeCapabilities() {
		if manyNodes(capability.GetAccessMode().GetMode()) {
			return "", status.Errorf(codes.InvalidArgument, "access mode %s: volumes of this class are for one node: "+
				"use ReadWriteOnce, or StorageClass local", capability.GetAccessMode().GetMode())
		}
	}
	topologies := append(r.GetAccessibilityRequirements().GetPreferred(),
		r.GetAccessibilityRequirements().GetRequisite()...)
	for _, t := range topologies {
		if node := t.GetSegments()[TopologyKey]; node != "" {
			return node, nil
		}
	}
	return "", status.Errorf(codes.ResourceExhausted, "accessibility_requirements name no node by %s: the class needs "+
		"volumeBindingMode WaitForFirstConsumer", TopologyKey)
}

func manyNodes(mode csi.VolumeCapability_AccessMode_Mode) bool {
	return mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER ||
		mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY ||
		mode == csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
}

func asVolume(v pool.Volume) *csi.Volume {
	out := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Size}
	switch {
	case v.Source.Volume != "":
		out.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.Source.Volume},
		}}
	case v.Source.Snapshot != "":
		out.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: v.Source.Snapshot},
		}}
	}
	if v.Node != "" {
		out.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{TopologyKey: v.Node}}}
	}
	return out
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	return new(csi.DeleteVolumeResponse), c.Pool.Remove(r.GetVolumeId())
}

func (c *controller) ControllerExpandVolume(
	_ context.Context, r *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "capacity_range is missing")
	}
	if c.plain() {
		return nil, status.Error(codes.Unimplemented, "this driver cannot expand volumes")
	}
	v, err := c.Pool.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	size, err := wantedSize(r.GetCapacityRange(), v.FSType)
	if err != nil {
		return nil, err
	}
	if v, err = c.Pool.Grow(v.ID, size); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Size, NodeExpansionRequired: v.FSType != ""}, nil
}

func (c *controller) ValidateVolumeCapabilities(
	_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	fsType, err := c.fileSystem(r.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	v, err := c.Pool.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if fsType != v.FSType && (fsType != pool.AnyFS || v.FSType == "") {
		return &csi.ValidateVolumeCapabilitiesResponse{
			Message: "the volume's file system is " + strconv.Quote(v.FSType),
		}, nil
	}
	for _, capability := range r.GetVolumeCapabilities() {
		if v.Node != "" && manyNodes(capability.GetAccessMode().GetMode()) {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: "the volume is for node " + v.Node + " alone"}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(),
			Parameters: r.GetParameters(),
		},
	}, nil
}
