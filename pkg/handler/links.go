package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const (
	// linkTimeout bounds one attempt to change the guest's interfaces; the launcher's own limit is shorter.
	linkTimeout = time.Minute
	// linkRetryMost is the longest wait before a change that failed is tried again.
	linkRetryMost = 10 * time.Second
)

// keepLinked keeps the links of the guest's interfaces as its VMI says, and unplugs those that it wants to be absent, until ctx
// ends.
func (s *session) keepLinked(ctx context.Context, client launcherpb.LauncherClient) {
	s.keep(ctx, "interfaces of the guest", linkRetryMost, func(vmi *v1.VirtualMachineInstance) (time.Duration, error) {
		return 0, s.link(ctx, client, vmi)
	})
}

func (s *session) link(ctx context.Context, client launcherpb.LauncherClient, vmi *v1.VirtualMachineInstance) error {
	if vmi.Status.NodeName != s.node.Name || vmi.DeletionTimestamp != nil || !relinks(vmi, s.observation().Guest) {
		return nil
	}
	encoded, err := json.Marshal(vmi)
	if err != nil {
		return fmt.Errorf("encode VirtualMachineInstance: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	_, err = client.SetInterfaces(ctx, &launcherpb.SetInterfacesRequest{VmiJson: encoded})
	return err
}

// relinks reports that an interface of the guest is not as its VMI says.
func relinks(vmi *v1.VirtualMachineInstance, guest *launcherpb.GuestState) bool {
	if guest.GetLifecycle() != launcherpb.Lifecycle_LIFECYCLE_RUNNING {
		return false
	}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		link, there := guest.GetInterfaceLinks()[nic.Name]
		if there && (nic.State == v1.InterfaceStateAbsent || (nic.State == v1.InterfaceStateLinkDown) == (link == "up")) {
			return true
		}
	}
	return false
}
