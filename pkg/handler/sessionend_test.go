package handler

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// endingClient has the session end during each call.
type endingClient struct {
	launcherpb.LauncherClient
	end   context.CancelFunc
	calls int
}

func (c *endingClient) ended() error {
	c.calls++
	c.end()
	return grpcstatus.Error(codes.Canceled, context.Canceled.Error())
}

func (c *endingClient) SetDiskLimits(
	context.Context, *launcherpb.SetDiskLimitsRequest, ...grpc.CallOption,
) (*launcherpb.SetDiskLimitsResponse, error) {
	return nil, c.ended()
}

func (c *endingClient) GrowVolumes(
	context.Context, *launcherpb.GrowVolumesRequest, ...grpc.CallOption,
) (*launcherpb.GrowVolumesResponse, error) {
	return nil, c.ended()
}

func (c *endingClient) Resize(
	context.Context, *launcherpb.ResizeRequest, ...grpc.CallOption,
) (*launcherpb.ResizeResponse, error) {
	return nil, c.ended()
}

// What fails because the session ends, as it does when virt-handler is restarted, is no failure that the VMI says, and
// no event.
func TestEndOfSessionIsNoFailure(t *testing.T) {
	for name, attempt := range map[string]func(ctx context.Context, s *session, c *endingClient){
		"rates": func(ctx context.Context, s *session, c *endingClient) { s.keepRated(ctx, c, nil) },
		"sizes of disks": func(ctx context.Context, s *session, c *endingClient) {
			if err := s.grow(ctx, c, s.vmi); err == nil {
				t.Error("the disks have grown")
			}
		},
		"size": func(ctx context.Context, s *session, c *endingClient) {
			if err := s.size(ctx, c, s.vmi); err == nil {
				t.Error("the guest has its size")
			}
		},
		"a volume": func(ctx context.Context, s *session, c *endingClient) {
			s.plugAll(ctx, s.vmi, setbacks{}, func(task) (vmistatus.Volume, error) {
				return vmistatus.Volume{}, c.ended()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Status.NodeName, vmi.Status.Phase = nodeName, v1.Running
			vmi.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true},
			}}}
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{
				Name: "data", Phase: v1.HotplugVolumeAttachedToNode,
				HotplugVolume: &v1.HotplugVolumeStatus{AttachPodUID: "u"},
			}}
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
				Type: v1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue,
				Reason: sizing.ReasonPodResized,
			}}
			s := &session{
				node: &Node{Name: nodeName, Now: time.Now, stepLimit: time.Minute}, vmi: vmi,
				log:     slog.New(slog.DiscardHandler),
				changed: func(bool) { t.Error("something is published") },
			}
			ctx, end := context.WithCancel(t.Context())
			client := &endingClient{end: end}
			attempt(ctx, s, client)
			if client.calls != 1 {
				t.Errorf("%d calls", client.calls)
			}
		})
	}
}
