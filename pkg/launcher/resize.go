package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// resizeTimeout bounds a change of the guest's size; the guest takes its time by itself.
const resizeTimeout = 30 * time.Second

// Resize implements the contract.
func (s *service) Resize(ctx context.Context, req *pb.ResizeRequest) (*pb.ResizeResponse, error) {
	s.plugging.Lock()
	defer s.plugging.Unlock()
	// As AttachVolume.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resizeTimeout)
	defer cancel()
	if err := s.resize(ctx, req); err != nil {
		s.options.Log.Warn("cannot change the guest's size", "err", err)
		return nil, err
	}
	return &pb.ResizeResponse{}, nil
}

func (s *service) resize(ctx context.Context, req *pb.ResizeRequest) error {
	vmi := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(req.VmiJson, vmi); err != nil {
		return status.Errorf(codes.InvalidArgument, "read the VMI: %v", err)
	}
	conn, now, err := s.domainNow(ctx)
	if err != nil {
		return err
	}
	defer s.guest.refresh(ctx, conn, false)
	if err := s.plugCPUs(ctx, conn, now, vmi); err != nil {
		return err
	}
	return s.plugMemory(ctx, conn, now, vmi)
}

// plugCPUs brings the vCPUs of further sockets online, on CPUs of their own if the guest has such.
func (s *service) plugCPUs(
	ctx context.Context, conn hypervisor.Connection, now hypervisor.Domain, vmi *v1.VirtualMachineInstance,
) error {
	sockets, _ := sizing.Sockets(&vmi.Spec.Domain)
	want := uint(sockets * sizing.PerSocket(&vmi.Spec.Domain))
	switch {
	case want > now.MaxVCPUs:
		return status.Errorf(codes.InvalidArgument,
			"%d vCPUs are more than the %d that the guest was started with room for", want, now.MaxVCPUs)
	case want < now.VCPUs:
		return status.Errorf(codes.InvalidArgument, "the guest has %d vCPUs and cannot be left with %d while it runs",
			now.VCPUs, want)
	case want > now.VCPUs:
		if err := conn.SetVCPUs(ctx, want); err != nil {
			return resizeError("plug CPUs in", err)
		}
		s.options.Log.Info("plugged CPUs in", "before", now.VCPUs, "now", want)
	}
	return s.pin(ctx, conn, vmi, int(want))
}

// pin puts the vCPUs of a guest with CPUs of its own where they belong in this pod.
func (s *service) pin(
	ctx context.Context, conn hypervisor.Connection, vmi *v1.VirtualMachineInstance, vcpus int,
) error {
	cpus, err := ownCPUs(vmi, "/sys")
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	place, err := domain.Place(&vmi.Spec.Domain, vcpus, cpus)
	if err != nil || place == nil {
		return resizeError("find CPUs of the guest's own", err)
	}
	for vcpu, cpu := range place.VCPUs {
		if err := conn.PinVCPU(ctx, uint(vcpu), []int{cpu.ID}); err != nil {
			return resizeError(fmt.Sprintf("pin vCPU %d", vcpu), err)
		}
	}
	if place.Emulator == nil {
		return nil
	}
	return resizeError("pin QEMU", conn.PinEmulator(ctx, []int{place.Emulator.ID}))
}

// pinReceived pins a guest that has come from another pod, where it had other CPUs.
func (s *service) pinReceived(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	if !sizing.Dedicated(&vmi.Spec.Domain) {
		return nil
	}
	s.plugging.Lock()
	defer s.plugging.Unlock()
	ctx, cancel := context.WithTimeout(ctx, resizeTimeout)
	defer cancel()
	conn, now, err := s.domainNow(ctx)
	if err != nil {
		return err
	}
	return s.pin(ctx, conn, vmi, int(now.VCPUs))
}

// plugMemory asks the guest to take memory, or to give some back.
func (s *service) plugMemory(
	ctx context.Context, conn hypervisor.Connection, now hypervisor.Domain, vmi *v1.VirtualMachineInstance,
) error {
	spec := &vmi.Spec.Domain
	if spec.Memory == nil || spec.Memory.Guest == nil || spec.Memory.MaxGuest == nil {
		return nil
	}
	requested := spec.Memory.Guest.Value() - now.MemoryAtBoot
	if now.Plugged == nil && requested == 0 || now.Plugged != nil && now.Plugged.Requested == requested {
		return nil
	}
	var err error
	dev := domain.GrowableMemory(spec, uint(now.MemoryAtBoot), uint(max(requested, 0)))
	switch {
	case requested < 0:
		return status.Errorf(codes.InvalidArgument, "%s is less than the memory that the guest was started with",
			spec.Memory.Guest)
	case dev == nil:
		return status.Error(codes.InvalidArgument, "the guest was started with no room for more memory")
	case requested > int64(dev.Target.Size.Value):
		return status.Errorf(codes.InvalidArgument, "%s is more than maxGuest, %s", spec.Memory.Guest,
			spec.Memory.MaxGuest)
	}
	if now.Plugged != nil {
		if requested > now.Plugged.Size {
			return status.Errorf(codes.InvalidArgument, "%s is more than the guest was started with room for",
				spec.Memory.Guest)
		}
		err = conn.RequestMemory(ctx, requested)
	} else {
		var xml string
		if xml, err = dev.Marshal(); err != nil {
			return status.Errorf(codes.InvalidArgument, "write the memory device: %v", err)
		}
		err = conn.Attach(ctx, xml)
	}
	if err != nil {
		return resizeError("plug memory in", err)
	}
	s.options.Log.Info("asked the guest to change its memory", "boot", now.MemoryAtBoot, "beyond", requested)
	return nil
}

func resizeError(what string, err error) error {
	if err == nil {
		return nil
	}
	return startError(&v1.VirtualMachineInstance{}, nil, fmt.Errorf("%s: %w", what, err))
}
