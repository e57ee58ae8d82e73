package launcher

import (
	"context"
	"encoding/json"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// SetInterfaces implements the contract.
func (s *service) SetInterfaces(ctx context.Context, req *pb.SetInterfacesRequest) (*pb.SetInterfacesResponse, error) {
	s.plugging.Lock()
	defer s.plugging.Unlock()
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	vmi := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(req.VmiJson, vmi); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "read the VMI: %v", err)
	}
	var plan network.Plan
	if len(req.NetworkPlanJson) > 0 {
		if err := json.Unmarshal(req.NetworkPlanJson, &plan); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "read the network plan: %v", err)
		}
	}
	conn, now, err := s.domainNow(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		link, there := now.Links[domain.InterfaceAlias(nic.Name)]
		err := error(nil)
		switch {
		case there:
			err = s.setInterface(ctx, conn, nic, link)
		case nic.State != v1.InterfaceStateAbsent && plan.Has(nic.Name):
			err = s.plugInterface(ctx, conn, vmi, plan, nic.Name)
		}
		if err != nil && failed == nil {
			failed = status.Errorf(status.Code(err), "interface %q: %s", nic.Name, status.Convert(err).Message())
		}
	}
	s.guest.refresh(ctx, conn, false)
	if failed != nil {
		s.options.Log.Warn("cannot change the interfaces", "err", failed)
		return nil, failed
	}
	return &pb.SetInterfacesResponse{}, nil
}

// plugInterface gives the guest an interface that it lacks.
func (s *service) plugInterface(
	ctx context.Context, conn hypervisor.Connection, vmi *v1.VirtualMachineInstance, plan network.Plan, name string,
) error {
	nic, err := domain.PluggedInterface(vmi, plan, name)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	xml, err := nic.Marshal()
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "write the interface: %v", err)
	}
	if err := conn.Attach(ctx, xml); err != nil {
		return startError(&v1.VirtualMachineInstance{}, nil, err)
	}
	s.options.Log.Info("plugged in", "interface", name, "mac", nic.MAC.Address)
	return nil
}

// setInterface changes one interface of the guest whose link is as given.
func (s *service) setInterface(ctx context.Context, conn hypervisor.Connection, nic v1.Interface, link string) error {
	alias := domain.InterfaceAlias(nic.Name)
	up := nic.State != v1.InterfaceStateLinkDown
	switch {
	case nic.State == v1.InterfaceStateAbsent:
		if err := conn.Detach(ctx, alias); err != nil {
			return startError(&v1.VirtualMachineInstance{}, nil, err)
		}
		if err := s.gone(ctx, conn, "the interface",
			func(d hypervisor.Domain) bool { return d.Links[alias] == "" }); err != nil {
			return err
		}
		s.options.Log.Info("unplugged", "interface", nic.Name)
	case up != (link == "up"):
		if err := conn.SetLink(ctx, alias, up); err != nil {
			return startError(&v1.VirtualMachineInstance{}, nil, err)
		}
		s.options.Log.Info("link", "interface", nic.Name, "up", up)
	}
	return nil
}

// interfaceLinks returns the links of interfaces by the VMI's names.
func interfaceLinks(links map[string]string) map[string]string {
	out := make(map[string]string, len(links))
	for alias, link := range links {
		if name, ok := strings.CutPrefix(alias, domain.InterfaceAlias("")); ok {
			out[name] = link
		}
	}
	return out
}
