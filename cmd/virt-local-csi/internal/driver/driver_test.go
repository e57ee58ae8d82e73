package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

func TestFaults(t *testing.T) {
	good, err := parseFaults("CreateVolume=delay:20ms CreateSnapshot=fail:2  NodeStageVolume=fail")
	want := []fault{{"CreateVolume", 20 * time.Millisecond, 0}, {"CreateSnapshot", 0, 2}, {"NodeStageVolume", 0, -1}}
	if err != nil || !slices.Equal(good, want) {
		t.Errorf("%+v, %v", good, err)
	}
	for _, bad := range []string{
		"CreateVolume", "CreateVolume=delay", "CreateVolume=fail:x", "Create=fail", "CreateVolume=break",
	} {
		if _, err := parseFaults(bad); err == nil || !strings.Contains(err.Error(), "CreateVolume=delay:2s") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var f faults
	for i := range 4 {
		err := f.inject(t.Context(), "CreateSnapshot", "s", "CreateSnapshot=fail:2")
		if want := i < 2; (status.Code(err) == codes.Unavailable) != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := f.inject(t.Context(), "CreateSnapshot", "other",
		"CreateSnapshot=fail:1"); status.Code(err) != codes.Unavailable {
		t.Errorf("each has its own count: %v", err)
	}
	if err := f.inject(t.Context(), "CreateSnapshot", "s", "CreateSnapshot=fail"); status.Code(err) != codes.Internal {
		t.Errorf("a failure that stays has to be final: %v", err)
	}
	if err := f.inject(t.Context(), "DeleteSnapshot", "s", "CreateSnapshot=fail"); err != nil {
		t.Errorf("another method: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.inject(ctx, "CreateVolume", "v", "CreateVolume=delay:1h"); status.Code(err) != codes.Canceled {
		t.Errorf("a call that was given up: %v", err)
	}
}

func TestPages(t *testing.T) {
	all := []int{1, 2, 3, 4, 5}
	var got []int
	token := ""
	for range 3 {
		some, next, err := page(all, token, 2)
		if err != nil {
			t.Fatal(err)
		}
		got, token = append(got, some...), next
	}
	if !slices.Equal(got, all) || token != "" {
		t.Errorf("%v, %q", got, token)
	}
	for _, bad := range []string{"x", "-1", "6"} {
		if _, _, err := page(all, bad, 0); status.Code(err) != codes.Aborted {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCodes(t *testing.T) {
	for err, want := range map[error]codes.Code{
		pool.ErrFull: codes.ResourceExhausted, pool.ErrInUse: codes.FailedPrecondition,
		pool.ErrNotFound: codes.NotFound,
		pool.ErrExists:   codes.AlreadyExists, context.DeadlineExceeded: codes.DeadlineExceeded,
		errors.New("x"):                     codes.Internal,
		status.Error(codes.OutOfRange, "x"): codes.OutOfRange,
	} {
		if got := status.Code(asStatus(fmt.Errorf("do: %w", err))); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func request(change func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	r := &csi.CreateVolumeRequest{
		Name: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 4096}, Parameters: map[string]string{},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Block{Block: new(csi.VolumeCapability_BlockVolume)},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}
	change(r)
	return r
}

func TestWantedVolume(t *testing.T) {
	node2 := &csi.TopologyRequirement{Preferred: []*csi.Topology{{Segments: map[string]string{TopologyKey: "node2"}}}}
	for _, c := range []struct {
		name   string
		driver string
		change func(*csi.CreateVolumeRequest)
		code   codes.Code
		want   pool.Volume
	}{
		{"block", Name, func(*csi.CreateVolumeRequest) {}, codes.OK, pool.Volume{Size: 4096}},
		{"one node", Name, func(r *csi.CreateVolumeRequest) {
			r.Parameters[Placement], r.AccessibilityRequirements = "node", node2
		}, codes.OK, pool.Volume{Size: 4096, Node: "node2"}},
		{
			"no node", Name, func(r *csi.CreateVolumeRequest) { r.Parameters[Placement] = "node" },
			codes.ResourceExhausted,
			pool.Volume{},
		},
		{"one node for many", Name, func(r *csi.CreateVolumeRequest) {
			r.Parameters[Placement], r.AccessibilityRequirements = "node", node2
			r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, codes.InvalidArgument, pool.Volume{}},
		{
			"unknown placement", Name, func(r *csi.CreateVolumeRequest) { r.Parameters[Placement] = "rack" },
			codes.InvalidArgument,
			pool.Volume{},
		},
		{"limit", Name, func(r *csi.CreateVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: 1, LimitBytes: 5}
		}, codes.OutOfRange, pool.Volume{}},
		{"backwards", Name, func(r *csi.CreateVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1}
		}, codes.InvalidArgument, pool.Volume{}},
		{
			"any size", Name, func(r *csi.CreateVolumeRequest) { r.CapacityRange = nil }, codes.OK,
			pool.Volume{Size: defaultSize},
		},
		{"other file system", Name, func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Mount{
				Mount: &csi.VolumeCapability_MountVolume{FsType: "ntfs"},
			}
		}, codes.InvalidArgument, pool.Volume{}},
		{"ext4", Name, func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Mount{
				Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"},
			}
		}, codes.OK, pool.Volume{Size: 1 << 20, FSType: "ext4"}},
		{"plain cannot clone", Plain, func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "w"},
			}}
		}, codes.InvalidArgument, pool.Volume{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := (&controller{Driver: &Driver{Name: c.driver}}).wanted(request(c.change))
			if status.Code(err) != c.code {
				t.Fatalf("%v", err)
			}
			if err == nil && (got.Size != c.want.Size || got.Node != c.want.Node || got.FSType != c.want.FSType) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestMountInfo(t *testing.T) {
	got := parseMounts("36 35 7:3 / /data\\040x rw,noatime shared:1 - xfs /dev/loop3 rw\n" +
		"37 35 0:5 /loop4 /dev/x rw - devtmpfs udev rw\nshort\n")
	want := []mountPoint{{"7:3", "/", "/data x"}, {"0:5", "/loop4", "/dev/x"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	for path, want := range map[string]bool{"/proc": true, "/proc/self/none": false, t.TempDir(): false} {
		if got, err := isMountPoint(path); err != nil || got != want {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
}

func TestOneCallAtATime(t *testing.T) {
	var b busy
	if !b.begin("v") || b.begin("v") || !b.begin("w") {
		t.Error("not one call for each")
	}
	b.end("v")
	if !b.begin("v") {
		t.Error("it is still busy")
	}
	for want, r := range map[string]any{
		"n": &csi.CreateVolumeRequest{Name: "n"}, "s": &csi.DeleteSnapshotRequest{SnapshotId: "s"},
		"v": &csi.NodeStageVolumeRequest{VolumeId: "v"}, "": &csi.NodeGetVolumeStatsRequest{VolumeId: "v"},
	} {
		if got := subject(r); got != want {
			t.Errorf("%T: %q", r, got)
		}
	}
}
