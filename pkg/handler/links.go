package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

const (
	// linkTimeout bounds one attempt to change the guest's interfaces; the launcher's own limit is shorter.
	linkTimeout = time.Minute
	// linkRetryMost is the longest wait before a change that failed is tried again.
	linkRetryMost = 10 * time.Second
)

// keepLinked keeps the links of the guest's interfaces as its VMI says, and unplugs those that it wants to be absent,
// until ctx ends.
func (s *session) keepLinked(ctx context.Context, client launcherpb.LauncherClient) {
	s.sync(ctx, "interfaces of the guest", linkRetryMost, func(vmi *v1.VirtualMachineInstance) (time.Duration, error) {
		return 0, s.link(ctx, client, vmi)
	})
}

func (s *session) link(ctx context.Context, client launcherpb.LauncherClient, vmi *v1.VirtualMachineInstance) error {
	seen := s.observation()
	if vmi.Status.NodeName != s.node.Name || vmi.DeletionTimestamp != nil ||
		!relinks(vmi, seen.Guest, seen.Plan, s.target.Annotations) {
		s.sawLinks(ctx, "")
		return nil
	}
	encoded, err := json.Marshal(vmi)
	if err != nil {
		return fmt.Errorf("encode VirtualMachineInstance: %w", err)
	}
	here := connected(vmi, seen.Plan, s.target.Annotations)
	unpoliced := s.behindPolicies(vmi, &here)
	plan, err := json.Marshal(here)
	if err != nil {
		return fmt.Errorf("encode network plan: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	_, err = client.SetInterfaces(limited, &launcherpb.SetInterfacesRequest{VmiJson: encoded, NetworkPlanJson: plan})
	switch {
	case err == nil:
		s.sawLinks(ctx, "")
	case grpcstatus.Code(err) != codes.FailedPrecondition: // the guest only needs longer
		s.sawLinks(ctx, describe(err))
	}
	return errors.Join(err, unpoliced) // which is tried again until virt-controller has said
}

// sawLinks publishes why the guest's interfaces could not be changed; empty is that they could.
func (s *session) sawLinks(ctx context.Context, failure string) {
	if s.observation().Unlinked != failure {
		s.report(ctx, true, func(o *observation) { o.Unlinked = failure })
	}
}

// connected returns the part of a plan that the guest's interfaces may be plugged into now.
func connected(vmi *v1.VirtualMachineInstance, plan *network.Plan, annotations map[string]string) network.Plan {
	here, _ := network.Lacking(vmi, plan, annotations, func(string) bool { return false })
	var out network.Plan
	if plan == nil {
		return out
	}
	for _, nic := range plan.Interfaces {
		if slices.Contains(here, nic.Name) {
			out.Interfaces = append(out.Interfaces, nic)
		}
	}
	return out
}

// relinks reports that an interface of the guest is not as its VMI says, and could be.
func relinks(
	vmi *v1.VirtualMachineInstance, guest *launcherpb.GuestState, plan *network.Plan, annotations map[string]string,
) bool {
	if guest.GetLifecycle() != launcherpb.Lifecycle_LIFECYCLE_RUNNING {
		return false
	}
	links := guest.GetInterfaceLinks()
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		link, there := links[nic.Name]
		if there &&
			(nic.State == v1.InterfaceStateAbsent || (nic.State == v1.InterfaceStateLinkDown) == (link == "up")) {
			return true
		}
	}
	lacking,
		_ := network.Lacking(vmi, plan, annotations, func(name string) bool { _, there := links[name]; return there })
	return len(lacking) > 0
}
