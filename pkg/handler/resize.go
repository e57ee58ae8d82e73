package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

const (
	// resizeTimeout bounds one attempt to change the guest's size; the launcher's own limit is shorter.
	resizeTimeout = time.Minute
	// resizeRetryMost is the longest wait before a change that failed is tried again.
	resizeRetryMost = 30 * time.Second
)

// keepSized gives the guest the size that its VMI says whenever its pod has room for it, until ctx ends.
func (s *session) keepSized(ctx context.Context, client launcherpb.LauncherClient) {
	s.sync(ctx, "size of the guest", resizeRetryMost, func(vmi *v1.VirtualMachineInstance) (time.Duration, error) {
		return 0, s.size(ctx, client, vmi)
	})
}

func (s *session) size(ctx context.Context, client launcherpb.LauncherClient, vmi *v1.VirtualMachineInstance) error {
	if vmi.Status.NodeName != s.node.Name || !sizing.MayResize(vmi) {
		s.sawSize(ctx, "")
		return nil
	}
	encoded, err := json.Marshal(vmi)
	if err != nil {
		return fmt.Errorf("encode VirtualMachineInstance: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, resizeTimeout)
	defer cancel()
	_, err = client.Resize(limited, &launcherpb.ResizeRequest{VmiJson: encoded})
	if err != nil {
		s.sawSize(ctx, describe(err))
		return err
	}
	s.sawSize(ctx, "")
	return nil
}

// sawSize publishes why the guest could not be given its size; empty is that it could.
func (s *session) sawSize(ctx context.Context, failure string) {
	if s.observation().Unsized != failure {
		s.report(ctx, true, func(o *observation) { o.Unsized = failure })
	}
}
