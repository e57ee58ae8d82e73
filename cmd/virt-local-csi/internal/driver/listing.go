package driver

import (
	"context"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

// page cuts from all what a listing asks for; the token is a number of entries.
func page[T any](all []T, token string, limit int32) (entries []T, next string, err error) {
	begin := 0
	if token != "" {
		if begin, err = strconv.Atoi(token); err != nil || begin < 0 || begin > len(all) {
			return nil, "", status.Errorf(codes.Aborted, "starting_token %q is none: begin anew", token)
		}
	}
	all = all[begin:]
	if limit > 0 && int(limit) < len(all) {
		return all[:limit], strconv.Itoa(begin + int(limit)), nil
	}
	return all, "", nil
}

func (c *controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all, err := c.Pool.Volumes()
	if err != nil {
		return nil, err
	}
	some, next, err := page(all, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	response := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range some {
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{
			Volume: asVolume(v), Status: new(csi.ListVolumesResponse_VolumeStatus),
		})
	}
	return response, nil
}

func (c *controller) ControllerGetVolume(
	_ context.Context, r *csi.ControllerGetVolumeRequest,
) (*csi.ControllerGetVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	v, err := c.Pool.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: asVolume(v), Status: new(csi.ControllerGetVolumeResponse_VolumeStatus),
	}, nil
}

func (c *controller) ControllerGetVolumeHealth(
	_ context.Context, r *csi.ControllerGetVolumeHealthRequest,
) (*csi.ControllerGetVolumeHealthResponse, error) {
	health, err := c.health(r.GetVolumeId())
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health}, err
}

// health returns what is wrong with a volume's image; nothing is an empty list.
func (d *Driver) health(id string) (*csi.VolumeHealth, error) {
	if err := required("volume_id", id); err != nil {
		return nil, err
	}
	v, err := d.Pool.Volume(id)
	if err != nil {
		return nil, err
	}
	health := &csi.VolumeHealth{VolumeId: id}
	if problem := d.Pool.Problem(v); problem != "" {
		health.HealthStatuses = []*csi.VolumeHealth_VolumeHealthEntry{{
			Status: csi.VolumeHealthErrorType_DATA_LOSS, Reason: "ImageDamaged", Message: problem,
		}}
	}
	return health, nil
}

func (c *controller) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	available, err := c.Pool.Available()
	if err != nil {
		return nil, err
	}
	least := pool.RoundUp(0, pool.AnyFS)
	if len(r.GetVolumeCapabilities()) > 0 {
		fsType, err := c.fileSystem(r.GetVolumeCapabilities())
		if err != nil {
			return nil, err
		}
		least = pool.RoundUp(0, fsType)
	}
	return &csi.GetCapacityResponse{
		AvailableCapacity: available, MaximumVolumeSize: wrapperspb.Int64(available),
		MinimumVolumeSize: wrapperspb.Int64(least),
	}, nil
}

func asSnapshot(s pool.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.Volume, SizeBytes: s.Size, CreationTime: timestamppb.New(s.Created),
		ReadyToUse: true,
	}
}

func (c *controller) CreateSnapshot(
	ctx context.Context, r *csi.CreateSnapshotRequest,
) (*csi.CreateSnapshotResponse, error) {
	if err := required("name", r.GetName(), "source_volume_id", r.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	if c.plain() {
		return nil, status.Error(codes.Unimplemented, "this driver cannot make snapshots")
	}
	s, err := c.Pool.TakeSnapshot(ctx, r.GetName(), r.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: asSnapshot(s)}, nil
}

func (c *controller) DeleteSnapshot(
	_ context.Context, r *csi.DeleteSnapshotRequest,
) (*csi.DeleteSnapshotResponse, error) {
	if err := required("snapshot_id", r.GetSnapshotId()); err != nil {
		return nil, err
	}
	return new(csi.DeleteSnapshotResponse), c.Pool.RemoveSnapshot(r.GetSnapshotId())
}

func (c *controller) GetSnapshot(_ context.Context, r *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if err := required("snapshot_id", r.GetSnapshotId()); err != nil {
		return nil, err
	}
	s, err := c.Pool.Snapshot(r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: asSnapshot(s)}, nil
}

func (c *controller) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	all, err := c.Pool.Snapshots()
	if err != nil {
		return nil, err
	}
	var matching []pool.Snapshot
	for _, s := range all {
		if (r.GetSnapshotId() == "" || r.GetSnapshotId() == s.ID) &&
			(r.GetSourceVolumeId() == "" || r.GetSourceVolumeId() == s.Volume) {
			matching = append(matching, s)
		}
	}
	some, next, err := page(matching, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	response := &csi.ListSnapshotsResponse{NextToken: next}
	for _, s := range some {
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: asSnapshot(s)})
	}
	return response, nil
}
