package launcher

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/disk"
)

// withCapacity is the demo whose claim has so much.
func withCapacity(capacity string) *v1.VirtualMachineInstance {
	vmi := demo()
	vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo.Capacity = corev1.ResourceList{
		corev1.ResourceStorage: resource.MustParse(capacity),
	}
	return vmi
}

func (l *life) grow(vmi *v1.VirtualMachineInstance) (*pb.GrowVolumesResponse, error) {
	l.t.Helper()
	data, err := json.Marshal(vmi)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.client.GrowVolumes(l.t.Context(), &pb.GrowVolumesRequest{VmiJson: data})
}

func TestGrowVolumes(t *testing.T) {
	l := begin(t)
	defer l.end(t)
	l.mustStart()
	const mebibyte = 1 << 20
	l.memory.change(func(d *hypervisor.Domain) {
		d.Disks = map[string]string{"ua-data": "vda", "ua-cd": "sda"}
		d.Empty = map[string]bool{"ua-cd": true}
		l.memory.sizes = map[string]int64{"vda": 10 * mebibyte}
	})
	for _, step := range []struct {
		capacity string
		fails    string
		size     int64
		asked    []string
	}{
		{"10Mi", "", 10 * mebibyte, nil},
		{"20Mi", "", 20 * mebibyte, []string{"vda 20971520"}},
		{"20Mi", "", 20 * mebibyte, nil},
		{"5Mi", "", 20 * mebibyte, nil},
		{"30Mi", "no space left", 20 * mebibyte, []string{"vda 31457280"}},
		{"30Mi", "", 30 * mebibyte, []string{"vda 31457280"}},
	} {
		l.memory.change(func(*hypervisor.Domain) {
			l.memory.grown, l.memory.growErr = nil, nil
			if step.fails != "" {
				l.memory.growErr = errors.New(step.fails)
			}
		})
		got, err := l.grow(withCapacity(step.capacity))
		if err != nil {
			t.Fatal(err)
		}
		var asked []string
		l.memory.change(func(*hypervisor.Domain) { asked = l.memory.grown })
		if !slices.Equal(asked, step.asked) || got.Sizes["data"] != step.size || len(got.Sizes) != 1 ||
			got.Failures["data"] != step.fails {
			t.Errorf("%s: %v, asked %v; want %+v", step.capacity, got, asked, step)
		}
	}
	image := filepath.Join(l.options.Disks.Claims, "data", disk.ClaimImage)
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	if got, err := l.grow(withCapacity("40Mi")); err != nil || !strings.Contains(got.Failures["data"], "no such file") {
		t.Errorf("no image: %v, %v", got, err)
	}
}

func TestGrowVolumesOfNothing(t *testing.T) {
	l := begin(t)
	defer func() {
		l.sigterm()
		if err := <-l.err; err != nil {
			t.Error(err)
		}
	}()
	if _, err := l.grow(demo()); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the start: %v", err)
	}
	_, err := l.client.GrowVolumes(t.Context(), &pb.GrowVolumesRequest{VmiJson: []byte("{")})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("not a VMI: %v", err)
	}
}

// TestTellReceived: a guest that came from another QEMU is told the sizes of its disks once, even of those that are as
// large as QEMU knows: they may have grown before QEMU had opened them.
func TestTellReceived(t *testing.T) {
	l := begin(t)
	defer l.end(t)
	l.mustStart()
	s := newService(t.Context(), Options{MigrationTarget: true, Disks: l.options.Disks, Log: l.options.Log}, nil, nil)
	l.memory.change(func(*hypervisor.Domain) { l.memory.sizes = map[string]int64{"vda": 10 << 20} })
	vmi := withCapacity("10Mi")
	for range 2 {
		size, err := s.grow(t.Context(), l.memory.conn, vmi, &vmi.Spec.Volumes[0], "vda")
		if err != nil || size != 10<<20 {
			t.Errorf("%d, %v", size, err)
		}
	}
	if diff := cmp.Diff([]string{"vda 10485760"}, l.memory.grown); diff != "" {
		t.Error(diff)
	}
}

// TestGrowAtStart: the image of a claim that was expanded while the guest did not run is larger when it starts.
func TestGrowAtStart(t *testing.T) {
	for capacity, want := range map[string]int64{"8Mi": 10 << 20, "20Mi": 20 << 20} {
		t.Run(capacity, func(t *testing.T) {
			l := begin(t)
			defer l.end(t)
			image := filepath.Join(l.options.Disks.Claims, "data", disk.ClaimImage)
			if err := errors.Join(os.WriteFile(image, []byte("data"), 0o600), os.Truncate(image, 10<<20)); err != nil {
				t.Fatal(err)
			}
			if _, err := l.start(withCapacity(capacity)); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(image)
			if err != nil || info.Size() != want {
				t.Fatalf("%v, %v, want %d bytes", info, err, want)
			}
			if data, err := os.ReadFile(image); err != nil || string(data[:4]) != "data" {
				t.Errorf("%q, %v", data[:4], err)
			}
		})
	}
}
