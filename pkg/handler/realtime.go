package handler

import (
	"context"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// realtimeRetryMost is the longest wait before vCPUs whose priority could not be set are tried again.
const realtimeRetryMost = 30 * time.Second

// keepRealtime gives the guest's vCPUs the priority that its VMI says, which nothing in the pod may do, until ctx ends.
func (s *session) keepRealtime(ctx context.Context, process *podfs.Process) {
	s.sync(ctx, "real-time priority of the guest", realtimeRetryMost,
		func(vmi *v1.VirtualMachineInstance) (time.Duration, error) {
			real, err := sizing.Realtime(&vmi.Spec.Domain)
			if real == nil || err != nil || vmi.Status.NodeName != s.node.Name {
				return 0, err
			}
			switch s.observation().Guest.GetLifecycle() {
			case launcherpb.Lifecycle_LIFECYCLE_RUNNING, launcherpb.Lifecycle_LIFECYCLE_PAUSED:
			default:
				return time.Second, nil
			}
			all, err := step(ctx, s, "threads of the pod",
				func() (bool, error) { return process.Realtime(s.node.ProcDir, real) })
			if err != nil || all {
				return 0, err
			}
			return time.Second, nil
		})
}
